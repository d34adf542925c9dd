"""The kernels of lowered networks as the family model sees them, at any batch."""

from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.model.family.physics import KernelTable, table_of_texts
from hybridlat.model.geometry import Geometry, geometry


def unfused(network: Network) -> Lowered:
    """A network whose operators are each a kernel of its own."""
    return Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "the file")


def kernel_rows(lowered: Lowered) -> Geometry:
    """One row and one cell for each kernel, in the order of the nodes."""
    return geometry([sign(cell.network).text for cell in kernels(lowered)])


def kernel_table(lowered: Lowered) -> KernelTable:
    """The kernels of a lowered network."""
    network = lowered.network
    texts = [sign(cell.network).text for cell in kernels(lowered)]
    copied = sum(network.type_of(name).bytes for name in (*network.inputs, *network.outputs))
    return table_of_texts(texts, [1] * len(texts), float(copied))
