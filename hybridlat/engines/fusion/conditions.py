"""The conditions that tables of fusion rules share, each of a producer and a consumer."""

from hybridlat.engines.fusion.rules import Condition, Group


def all_of(*conditions: Condition) -> Condition:
    """Every condition holds."""
    return lambda producer, consumer: all(condition(producer, consumer) for condition in conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition holds."""
    return lambda producer, consumer: any(condition(producer, consumer) for condition in conditions)


def unless(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda producer, consumer: not condition(producer, consumer)


def of_consumer(condition: Condition) -> Condition:
    """The condition of the consumer alone."""
    return lambda producer, consumer: condition(consumer, consumer)


def holds(*ops: str) -> Condition:
    """The producer holds one of the operators."""
    return lambda producer, consumer: any(op in ops for op in producer.ops)


def read_by(kinds: str) -> Condition:
    """A group of one of these kinds reads the consumer."""
    return lambda producer, consumer: any(g.kind in kinds.split() for g in consumer.consumers)


def only_reader(producer: Group, consumer: Group) -> bool:
    """What the consumer reads of the producer is read by nothing else and not given out."""
    outputs, readers_of = producer.network.outputs, producer.grouping.readers
    read = [name for name, maker in consumer.read if maker is producer]
    return all(readers_of(x) <= {producer, consumer} and x not in outputs for x in read)


def by_constant(producer: Group, consumer: Group) -> bool:
    """The consuming operator's other operand is a constant, and it alone reads the producer."""
    return only_reader(producer, consumer) and len(consumer.data) == 1


def by_scalar(producer: Group, consumer: Group) -> bool:
    """The consuming operator's other operand is one constant number."""
    known = map(consumer.network.constants.get, consumer.first.inputs)
    is_number = all(constant.type.elements == 1 for constant in known if constant)
    return is_number and by_constant(producer, consumer)


def gates_itself(producer: Group, consumer: Group) -> bool:
    """The consuming Mul multiplies what the producing Sigmoid reads with what it makes."""
    return only_reader(producer, consumer) and producer.first.inputs[0] in consumer.first.inputs


def behind_norm(producer: Group, consumer: Group) -> bool:
    """The consuming operator scales or shifts what the producing normalisation makes."""
    return by_constant(producer, consumer) and consumer.ops[0] not in producer.ops


def in_attention(producer: Group, consumer: Group) -> bool:
    """What the consumer makes goes through a softmax, scaled and masked or not, into a product."""
    readers = consumer.consumers
    if len(readers) != 1 or consumer.gives_out:
        return False
    op = readers[0].ops[0]
    if op == "MatMul":
        return consumer.ops[-1] == "Softmax"
    return op in ("Mul", "Div", "Add", "Softmax") and in_attention(consumer, readers[0])


def same_elements(producer: Group, consumer: Group) -> bool:
    """Both groups make as many elements: one loop can do both."""
    return producer.output.elements == consumer.output.elements


def reads_what_it_reduced(producer: Group, consumer: Group) -> bool:
    """The consumer runs over the elements that the producer has reduced along one axis."""
    source = next((n for n in producer.nodes[-1].inputs if n in consumer.network.types), "")
    if not source:
        return False
    read, made = consumer.network.types[source], consumer.output
    kept = producer.output.shape
    reduced = sum(a != b for a, b in zip(read.shape, kept, strict=False))
    return made.elements == read.elements and len(kept) == len(read.shape) and reduced == 1
