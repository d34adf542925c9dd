"""What files write in several ways is one form for engines whose rules see through it."""

import math
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from hybridlat.engines import registry
from hybridlat.engines.fusion.forms import FORMS
from hybridlat.engines.fusion.patterns import TURNS, Rewritten
from hybridlat.engines.fusion.places import EARLY_CUTS, EARLY_PLACES
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.graph.signature import read, sign
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted
from tests.engines.texts import model_of

PIXELS = TensorType("float32", (1, 8, 6, 6))
TARGETS = ("t4/tensorrt-10/fp16", "v100/torch-2.9/fp32", "rtx-4090/torch-compile-2.9/fp32")
MIXED = "rtx-3090/torch-2.4/amp"
X, Z, ROWS, STEPS = "float[1,8,6,6] x", "float[4,8] x", "float[2,5,8] x", "float[5,1,8] x"
HEADS = "float[2,3,5,8] q, float[2,3,6,8] k, float[2,3,6,8] v"
TURNED_HEADS = "float[5,1,2,4] q, float[5,1,2,4] k, float[1,2,5,4] v"
# What all texts may read: numbers; weights, which have no values; sizes, axes and places.
CONSTANTS = """
  float one = {1.0}, float two = {2.0}, float half = {0.5}, float root = {1.4142},
  float zero = {0.0}, float inverse = {0.7071}, float three = {3.0}, float six = {6.0},
  float slope = {0.7979}, float cubic = {0.0447}, float eps = {1e-5}, float[1] s6 = {0.6},
  float[1] t6 = {0.6}, float[1] one1 = {1.0}, float[2] g2, float[2] h2, float[5,6] mask,
  float[8] k8, float[8] l8, float[8] m8, float[8] v8, float[8] c, float[8] d8, float[6] b6,
  float[8,1,1] kp, float[8,1,1] lp, float[1,8,1,1] lq, float[8,8] w, float[8,8] w2,
  float[6,6] w6, float[8,3] w3, float[3,8] w3t, float[3] b3, float[8,8,1,1] f,
  float[8,8,1,1] f2, float[8,1,1,1] deep, float[8,8,2,2] c2, float[1,16,8] lx, float[1,16,4] lr,
  float[1,1,4] state,
  float[8] "onnx::Conv_1", float[8,8,1,1] _v_1, float[8] _v_2, float[8,16] _v_3, float[8,16] wide,
  float[8,8,1,1] ConvMulFusion_W_f, float[8] ConvMulFusion_Mul_B_c,
  float[8] ConvMulFusion_Mul_B_val_1,
  float[8,8,1,1] mul_weight, float[8] mul_bias, float[6,6] w_weight_fused, int64[2] flat6 = {48,6},
  float[6] w_bias_fused, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2},
  int64[1] i4 = {4}, int64[1] i8 = {8}, int64[2] i01 = {0,1}, int64[2] i12 = {1,2},
  int64[2] i44 = {4,4}, int64[2] i88 = {8,8}, int64[2] sides = {-1,-2}, int64[2] flat = {-1,8},
  int64[3] rows = {2,5,8}, int64[3] rows6 = {1,48,6}, int64[4] cut = {2,5,2,4},
  int64[4] plane = {1,1,6,6}, int64[4] pixel = {1,8,1,1}, int64[4] maps = {1,8,6,6},
  int64[3] keys = {6,6,8}, int64[4] turned = {2,3,8,6}, int64[3] pair = {1,2,144},
  int64[4] head = {1,1,48,6}, int64[4] keys6 = {1,1,6,48}, int64[3] five = {5,2,8},
  int64[4] keys3 = {1,2,3,48}, int64[4] heads = {1,2,48,3}, int64[4] by_head = {1,48,2,3},
  int64[4] behind = {2,2,4,5}, int64[3] half5 = {5,2,4}, int64[3] row5 = {5,1,8},
  float[8,6,6] g3, int64[4] line6 = {2,8,1,6}, int64[3] rows4 = {2,8,4},
  int64[1,8,1,1] each = {0,1,2,3,4,5,6,7}, float tiny = {1e-10}, float near = {1.000001},
  int64[3] spots = {4,1,3}, int64[3,1] spots1 = {4,1,3}, int64[2] two5 = {2,5},
  int64[3] single = {2,5,1}, int64[2] i00 = {0,0}, int64[2] i42 = {4,2}, int64[2] flat86 = {8,6},
  int64[2] one8 = {1,8}, int64[1,8,1] first8 = {0,0,0,0,0,0,0,0},
  int64[4] column = {2,5,1,8}, int64[4] row = {2,1,5,8}, float[8,8,1,1] _v_4,
  int64[8] around = {0,0,0,0,0,0,1,1}, int64[8] none = {0,0,0,0,0,0,0,0},
  float[4] zoom = {1.0,1.0,2.0,2.0}, float n36 = {36.0}, float part36 = {0.0277778},
  int64 at = {1}, int64[3] plane3 = {1,6,6}, int64[3] times5 = {1,5,1},
  int64[5] shared = {2,1,3,6,8},  int64[5] alone = {2,1,1,6,8}, int64[4] own = {2,3,6,8},
  int64[3,2] spots2 = {0,4,0,1,0,3}, int64[2] single8 = {8,1}, float lowest = {-1e30},
  int64[4] heads2 = {1,5,2,4}, int64[3] rows1 = {1,5,8}, float[8,24] qkv, float[24] qkv_bias,
  int64[1] vector = {-1}, float[4] wider = {1.0,1.0,1.0,2.0}, float[12] nearness,
  int64[12] low = {0,0,0,1,1,2,2,3,3,4,4,5}, int64[12,1] low1 = {0,0,0,1,1,2,2,3,3,4,4,5},
  int64[1] i3 = {3}, int64[2] flat3 = {48,3}, int64[2] one144 = {1,144},
  int64[12,1] high1 = {1,1,1,2,2,3,3,4,4,5,5,5}, int64[12] high = {1,1,1,2,2,3,3,4,4,5,5,5}"""
SCALED = """b = Reshape(k, keys) c0 = Transpose<perm=[0,2,1]>(b) e = Reshape(c0, turned)
  a = Mul(q, s6) g = Mul(e, t6) d = MatMul(a, g)"""
TURNED = """b = Transpose<perm=[1,0,2,3]>(k) e = Transpose<perm=[1,0,3,2]>(b) a = Mul(q, s6)
  g = Mul(e, t6) d = MatMul(a, g)"""
BATCH = "t = Transpose<perm=[1,0,2]>(x)"
BRANCHES = "a = Relu(x) b = Tanh(x) e = Sigmoid(x)"
SAME: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "rows between views": (ROWS, [
        (20, "a = MatMul(x, w) b = Add(a, c) e = Gelu(b) d = MatMul(e, w2) y = Add(d, d8)"),
        (20, "a = Reshape(x, flat) b = Gemm(a, w, c) e = Gelu(b) d = Gemm(e, w2, d8) "
             "y = Reshape(d, rows)"),
        (20, """r = Reshape(x, flat) a = MatMul(r, w) g = Reshape(a, rows) b = Add(g, c) e = Gelu(b)
             h = Reshape(e, flat) d = Gemm<transB=1>(h, w2, d8) y = Reshape(d, rows)"""),
    ]),
    "rows of gates between views": (ROWS, [
        (20, """a = MatMul(x, w) b = Add(a, c) s = Sigmoid(b) e = Mul(b, s) d = MatMul(e, w2)
             y = Add(d, d8)"""),
        (20, """r = Reshape(x, flat) b = Gemm(r, w, c) s = Sigmoid(b) e = Mul(b, s)
             d = Gemm(e, w2, d8) y = Reshape(d, rows)"""),
    ]),
    "a product that turns what it reads": ("float[8,4] x", [
        (13, "t = Transpose(x) y = Gemm(t, w)"), (13, "y = Gemm<transA=1>(x, w)"),
    ]),
    "places behind an axis of size 1": ("float[1,8,6] x", [
        (13, "a = ArgMax<axis=2>(x) b = Reshape(x, flat86) d = Reshape(a, one8) y = Gather(b, d)"),
        (13, "a = ArgMax<axis=2>(x) b = Concat<axis=2>(first8, a) y = GatherND(x, b)"),
    ]),
    "constant places behind an axis of size 1": ("float[1,8,6] x", [
        (13, "a = Reshape(x, flat86) b = Gather(a, spots) y = Relu(b)"),
        (13, "b = GatherND(x, spots2) y = Relu(b)"),
    ]),
    "places of single elements": ("float[1,8] x", [
        (13, "a = Reshape(x, i8) b = Gather(a, spots) y = Relu(b)"),
        (13, "a = Reshape(x, single8) b = Gather(a, spots) d = Reshape(b, vector) "
             "y = Relu(d)"),
    ]),
    "what lies between two numbers": (X, [
        (17, "a = Relu(x) b = Clip(a, half, six) y = Tanh(b)"),
        (17, "a = Relu(x) d = Max(a, half) b = Min(d, six) y = Tanh(b)"),
        (17, "a = Relu(x) d = Min(six, a) b = Max(d, half) y = Tanh(b)"),
    ]),
    "a norm over several axes": (X, [
        (17, "a = LayerNormalization<axis=1>(x, g3) y = Relu(a)"),
        (13, """m = ReduceMean<axes=[1,2,3]>(x) d = Sub(x, m) p = Pow(d, two)
             v = ReduceMean<axes=[1,2,3]>(p) e = Add(v, eps) s = Sqrt(e) n = Div(d, s)
             a = Mul(n, g3) y = Relu(a)"""),
    ]),
    "a cast to the type that is there": (X, [
        (17, "a = Relu(x) y = Tanh(a)"), (17, "a = Relu(x) b = CastLike(a, x) y = Tanh(b)"),
    ]),
    "what is nothing below zero": (X, [
        (17, f"a = Tanh(x) b = {bounded} y = Exp(b)") for bounded in ("Relu(a)", "Clip(a, zero)")
    ]),
    "a mean of rows whose axes are turned": (ROWS, [
        (13, f"t = Transpose<perm=[0,2,1]>(x) {mean} d = Flatten(m) y = Relu(d)")
        for mean in ("m = GlobalAveragePool(t)", "u = Unsqueeze(t, i2) m = GlobalAveragePool(u)",
                     "u = Unsqueeze(t, i2) m = ReduceMean<axes=[2,3]>(u)")
    ]),
    "a pool of rows": ("float[2,8,6] x", [
        (17, "a = MaxPool<kernel_shape=[2], strides=[2], pads=[1,1]>(x) y = Relu(a)"),
        (17, """a = Reshape(x, line6) b = MaxPool<kernel_shape=[1,2], strides=[1,2],
             pads=[0,1,0,1]>(a) d = Reshape(b, rows4) y = Relu(d)"""),
    ]),
    "slices of one slice": (X, [
        (17, """a = Slice(x, i0, i4, i1) b = Slice(a, i1, i4, i2) y = Relu(b)
             d = Slice(a, i0, i2, i2) z = Tanh(d)"""),
        (17, "b = Slice(x, i01, i44, i12) y = Relu(b) d = Slice(x, i00, i42, i12) z = Tanh(d)"),
    ]),
    "parts that scale and shift": (X, [
        (13, f"p = GlobalAveragePool(x) h = Slice(x, i0, i4, i1) {a} m = Mul(h, a) y = Add(m, b)")
        for a in ("a, b = Split<axis=1>(p)", "a = Slice(p, i0, i4, i1) b = Slice(p, i4, i8, i1)")
    ]),
    "a sum with several views": (X, [
        (17, f"a = ReduceSum<keepdims=0>(x, i1) b = Reshape(a, plane) y = Relu(b) {e} z = Tanh(e)")
        for e in ("e = Flatten(a)", "d = ReduceSum<keepdims=0>(x, i1) e = Flatten(d)")
    ]),
    "a variance of a sample": (ROWS, [
        (17, "v = ReduceMean<axes=[2]>(x) a = Mul(v, six) b = Div(a, three) y = Sqrt(b)"),
        (17, """v = ReduceMean<axes=[2], keepdims=0>(x) a = Mul(v, six) b = Div(a, three)
             d = Reshape(b, single) y = Sqrt(d)"""),
    ]),
    "places along the first axis": (ROWS, [
        (13, "a = Reshape(x, flat) y = Gather(a, spots)"),
        (13, "a = Reshape(x, flat) y = GatherND(a, spots1)"),
    ]),
    "computed places along the first axis": (ROWS, [
        (13, "a = ArgMax<axis=2>(x) b = Reshape(a, two5) y = Gather(x, b)"),
        (13, "a = ArgMax<axis=2>(x) y = GatherND(x, a)"),
    ]),
    "a norm behind means of windows": (X, [
        (17, f"a = AveragePool<kernel_shape=[2,2]>(x) {norm} y = Relu(n)") for norm in (
            "n = BatchNormalization(a, k8, l8, m8, v8)", "m = Mul(a, kp) n = Add(m, lp)",
        )
    ]),
    "whichever pixel is nearest": (X, [
        (17, f"y = Resize<{way}>(x, , zoom)") for way in (
            'coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
            'coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor"',
            "cubic_coeff_a=-0.5",
        )
    ]),
    "what is done twice": ("bool[1,8,6,6] x", [
        (17, "d = Not(x) a = Cast<to=1>(d) b = Tanh(a) y = Add(b, a)"),
        (17, "d = Not(x) a = Cast<to=1>(d) b = Tanh(a) e = Cast<to=1>(d) y = Add(b, e)"),
    ]),
    "a divisor that is not zero": (X, [
        (17, "a = Abs(x) y = Div(x, a)"),
        (17, "a = Abs(x) b = Add(a, tiny) d = Mul(b, near) e = Sub(d, zero) y = Div(x, e)"),
    ]),
    "places that begin with zero": (ROWS, [
        (17, "a = ArgMax(x) y = Gather(x, a)"),
        (17, "a = ArgMax(x) b = Add(a, i0) y = Gather(x, b)"),
    ]),
    "a maximum over rows": (ROWS, [
        (13, "a = ReduceMax<axes=[2]>(x) y = Relu(a)"),
        (13, "a = MaxPool<kernel_shape=[8]>(x) y = Relu(a)"),
        (13, """r = Reshape(x, column) a = ReduceMax<axes=[2,3], keepdims=0>(r)
             b = Reshape(a, single) y = Relu(b)"""),
    ]),
    "a pad that a layer and others read": (X, [
        (13, f"q = Pad(x, around) a = MaxPool<kernel_shape=[2,2]>(q) d = {layer} y = Add(a, d)")
        for layer in ("Conv(q, c2, c)", "Conv<pads=[0,0,1,1]>(x, c2, c)")
    ]),
    "a sum that keeps its axes": (X, [
        (17, "a = ReduceSum(x, i1) y = Add(x, a)"),
        (17, "b = ReduceSum<keepdims=0>(x, i1) a = Reshape(b, plane) y = Add(x, a)"),
    ]),
    "a slice of a slice": (X, [
        (17, "a = Slice(x, i0, i4, i1) b = Slice(a, i1, i4, i2) y = Relu(b)"),
        (17, "b = Slice(x, i01, i44, i12) y = Relu(b)"),
    ]),
    "gelu": (X, [
        (20, "y = Gelu(x)"),
        (17, "y = com.microsoft.Gelu(x)"),
        (17, "a = Div(x, root) b = Erf(a) g = Add(b, one) d = Mul(x, g) y = Mul(d, half)"),
        (17, "h = Mul(x, half) a = Mul(x, inverse) b = Erf(a) g = Add(b, one) y = Mul(h, g)"),
        (13, "a = Mul(x, inverse) b = Erf(a) g = Add(one, b) d = Mul(g, half) y = Mul(d, x)"),
    ]),
    "gelu by tanh": (X, [
        (20, 'y = Gelu<approximate="tanh">(x)'),
        (17, "y = com.microsoft.FastGelu(x)"),
        (17, """p = Pow(x, three) q = Mul(p, cubic) r = Add(x, q) s = Mul(r, slope) t = Tanh(s)
             u = Add(t, one) v = Mul(x, u) y = Mul(v, half)"""),
        (17, """o = Mul(x, x) p = Mul(x, o) q = Mul(p, cubic) r = Add(x, q) s = Mul(r, slope)
             t = Tanh(s) u = Add(t, one) v = Mul(x, u) y = Mul(v, half)"""),
    ]),
    "silu": (X, [
        (24, "y = Swish(x)"),
        (17, "s = Sigmoid(x) y = Mul(x, s)"),
        (13, "s = Sigmoid(x) y = Mul(s, x)"),
        (13, "y = com.microsoft.QuickGelu<alpha=1.0>(x)"),
    ]),
    "hard swish": (X, [
        (14, "y = HardSwish(x)"),
        (13, "a = Add(x, three) b = Clip(a, zero, six) g = Div(b, six) y = Mul(x, g)"),
        (13, "a = HardSigmoid<alpha=0.166667>(x) y = Mul(x, a)"),
    ]),
    "mish": (X, [(18, "y = Mish(x)"), (17, "s = Softplus(x) t = Tanh(s) y = Mul(x, t)")]),
    "batch norm": (X, [
        (15, "r = Relu(x) n = BatchNormalization(r, k8, l8, m8, v8) y = Relu(n)"),
        (13, "r = Relu(x) m = Mul(kp, r) n = Add(m, lq) y = Relu(n)"),
    ]),
    "layer norm": (ROWS, [
        (17, "y = LayerNormalization(x, k8, l8)"),
        (13, """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two)
             v = ReduceMean<axes=[2]>(q) a = Add(v, eps) r = Sqrt(a) n = Div(d, r)
             s = Mul(n, k8) y = Add(s, l8)"""),
        (13, """m = ReduceMean<axes=[2]>(x) d = Sub(x, m) q = Mul(x, x) e = ReduceMean<axes=[2]>(q)
             o = Mul(m, m) h = Sub(e, o) v = Max(h, zero) a = Add(v, eps) r = Sqrt(a) n = Div(d, r)
             s = Mul(n, k8) y = Add(s, l8)"""),
        *[(13, f"""m = {mean}(x) d = Sub(x, m) q = Mul(d, d) v = {mean}(q) a = Add(v, eps)
             r = Sqrt(a) i = {inverse} s = Mul(i, k8) t = Mul(x, s) {shift} y = Add(t, u)""")
          for mean, inverse, shift in [
              ("ReduceMean<axes=[2]>", "Reciprocal(r)", "n = Mul(m, s) u = Sub(l8, n)"),
              ("GlobalAveragePool", "Div(one, r)", "n = Neg(m) o = Mul(n, s) u = Add(o, l8)"),
              ("GlobalAveragePool", "Reciprocal(r)", "n = Mul(m, s) u = Neg(n)"),
          ]],
    ]),
    "a norm by the root of a mean square": (ROWS, [
        (23, "y = RMSNormalization<axis=2>(x, k8)"),
        (17, """q = Pow(x, two) m = ReduceMean<axes=[2]>(q) a = Add(m, eps) r = Sqrt(a)
             i = Reciprocal(r) n = Mul(x, i) y = Mul(n, k8)"""),
        (17, """q = Mul(x, x) m = ReduceMean<axes=[2]>(q) a = Add(m, eps) r = Sqrt(a) n = Div(x, r)
             y = Mul(k8, n)"""),
        (17, "y = SimplifiedLayerNormalization<axis=-1>(x, k8)"),
    ]),
    "a norm of a sum with a bias": (f"{ROWS}, float[2,5,8] r", [
        (17, "a = Add(x, c) b = Add(a, r) y = LayerNormalization(b, k8, l8) z = Relu(b)"),
        (17, "y, , , b = com.microsoft.SkipLayerNormalization(x, r, k8, l8, c) z = Relu(b)"),
    ]),
    "a convolution that ONNX Runtime joins": (X, [
        (17, "a = Conv(x, f, c) b = Add(a, x) y = HardSigmoid<alpha=0.166667>(b)"),
        (17, """y = com.microsoft.FusedConv<activation="HardSigmoid",
             activation_params=[0.166667, 0.5]>(x, f, c, x)"""),
    ]),
    "a product that ONNX Runtime joins": (Z, [
        (17, "a = Gemm(x, w, c) y = LeakyRelu<alpha=0.3>(a)"),
        (17, """y = com.microsoft.FusedGemm<activation="LeakyRelu", activation_alpha=0.3,
             alpha=1.0, beta=1.0>(x, w, c)"""),
    ]),
    "gelu of a sum": (ROWS, [
        (20, "a = Add(x, c) y = Gelu(a)"), (17, "y = com.microsoft.BiasGelu(x, c)"),
    ]),
    "nothing below zero": (X, [
        (13, "y = Relu(x)"), (13, "y = Max(x, zero)"), (13, "y = Max(zero, x)"),
    ]),
    "one place of an axis": (X, [
        (13, "a = Slice(x, i1, i2, i1) y = Reshape(a, plane3)"), (13, "y = Gather<axis=1>(x, at)"),
        (13, "y = Gather<axis=-3>(x, at)"),
    ]),
    "what repeats single elements": ("float[2,1,8] x", [
        (13, f"y = {op}") for op in ("Tile(x, times5)", "Expand(x, times5)", "Expand(x, rows)")
    ]),
    "a number with an axis or without": (X, [
        (13, f"a = Mul(x, {number}) y = Relu(a)") for number in ("half", "s6", "one1")
    ]),
    "a mean of all pixels": (X, [
        (13, "y = GlobalAveragePool(x)"), (17, "a = ReduceSum(x, sides) y = Div(a, n36)"),
        (17, "a = ReduceSum(x, sides) y = Mul(a, part36)"),
    ]),
    "a mean over pixels": (X, [
        (13, "a = GlobalAveragePool(x) y = Flatten(a)"),
        (18, "y = ReduceMean<keepdims=0>(x, sides)"),
        (13, "t = Transpose<perm=[0,2,3,1]>(x) y = ReduceMean<axes=[1,2], keepdims=0>(t)"),
    ]),
    "a mean over pixels as an image": (X, [
        (13, "a = GlobalAveragePool(x) y = Relu(a)"),
        (13, "a = ReduceMean<axes=[2,3], keepdims=0>(x) b = Reshape(a, pixel) y = Relu(b)"),
        (13, """a = GlobalAveragePool(x) b = Reshape(a, pixel) d = Transpose<perm=[0,2,3,1]>(b)
             e = Transpose<perm=[0,3,1,2]>(d) y = Relu(e)"""),
    ]),
    "a maximum over pixels": (X, [
        (13, "y = GlobalMaxPool(x)"), (13, "y = ReduceMax<axes=[2,3]>(x)"),
    ]),
    "a product": (Z, [
        (13, "y = Gemm<transB=1>(x, w3t, b3)"), (13, "a = MatMul(x, w3) y = Add(a, b3)"),
    ]),
    "axes of one element turned beside a view": (ROWS, [
        (13, "a = Reshape(x, column) b = Softmax<axis=1>(a) y = Reshape(b, flat)"),
        (13, "a = Reshape(x, row) t = Transpose<perm=[0,2,1,3]>(a) b = Softmax<axis=1>(t) "
             "y = Reshape(b, flat)"),
    ]),
    "products of rows whose batch is turned": ("float[1,5,8] x", [
        (13, f"""{BATCH} a = MatMul(t, w) y = Reshape(a, half5) b = MatMul(t, w2) d = Add(b, d8)
             z = Softmax(d)"""),
        (13, f"""{BATCH} r = Reshape(t, flat) a = Gemm(r, w) y = Reshape(a, half5)
             b = Gemm(r, w2, d8) d = Reshape(b, row5) z = Softmax(d)"""),
    ]),
    "a product of rows that a view puts together": ("float[2,5,2,4] x", [
        (13, "a = Reshape(x, rows) b = MatMul(a, w) y = Add(b, c)"),
        (13, "a = Reshape(x, flat) b = Gemm<transB=1>(a, w) y = Reshape(b, rows)"),
    ]),
    "attention": (HEADS, [
        (23, "y = Attention(q, k, v)"),
        (23, "y = Attention<is_causal=0, scale=0.25>(q, k, v)"),
        *[(17, f"{scores} s = Softmax(d) y = MatMul(s, v)") for scores in (SCALED, TURNED)],
        (17, f"{SCALED} s = Softmax(d) n = IsNaN(s) h = Where(n, zero, s) y = MatMul(h, v)"),
        (17, f"""{SCALED} s = Softmax(d) n = Equal(d, lowest) o = Not(n) p = Cast<to=7>(o)
             h = ReduceMax<axes=[3]>(p) i = Cast<to=9>(h) j = Not(i) l = Where(j, zero, s)
             y = MatMul(l, v)"""),
        (17, """d = com.microsoft.FusedMatMul<transB=1, alpha=0.36>(q, k) s = Softmax(d)
             y = MatMul(s, v)"""),
    ]),
    "attention without a scale": (HEADS, [
        (23, "y = Attention<scale=1.0>(q, k, v)"),
        (17, "e = Transpose<perm=[0,1,3,2]>(k) d = MatMul(q, e) s = Softmax(d) y = MatMul(s, v)"),
    ]),
    "products that a simplifier joins": (ROWS, [
        (17, "a = MatMul(x, w) y = Add(a, c) b = MatMul(x, w2) z = Add(b, d8)"),
        (17, "j = MatMul(x, _v_3) a, b = Split<axis=2>(j, i88) y = Add(a, c) z = Add(b, d8)"),
    ]),
    "masked attention": (HEADS, [
        (23, "y = Attention(q, k, v, mask)"),
        (23, "y = Attention<is_causal=1>(q, k, v)"),
        (17, f"{SCALED} h = Add(d, mask) s = Softmax(h) y = MatMul(s, v)"),
    ]),
    "attention with a mask of truths": (f"bool[5,6] m, {HEADS}", [
        (23, "y = Attention(q, k, v, m)"),
        (17, f"{SCALED} n = Where(m, zero, six) h = Add(d, n) s = Softmax(h) y = MatMul(s, v)"),
    ]),
    "attention with its products": ("float[1,5,8] x", [
        (17, """a = MatMul(x, w) e = Add(a, c) g = Reshape(e, heads2) i = MatMul(x, w2)
             j = Add(i, d8) l = Reshape(j, heads2) n = MatMul(x, w) o = Add(n, c)
             p = Reshape(o, heads2) q = Transpose<perm=[0,2,1,3]>(g)
             k = Transpose<perm=[0,2,3,1]>(l) v = Transpose<perm=[0,2,1,3]>(p) r = Mul(q, s6)
             t = Mul(k, t6) u = MatMul(r, t) h = Softmax(u) d = MatMul(h, v)
             b = Transpose<perm=[0,2,1,3]>(d) m = Reshape(b, rows1) y = Relu(m)"""),
        (17, "a = com.microsoft.Attention<num_heads=2>(x, qkv, qkv_bias) y = Relu(a)"),
    ]),
    "attention of batches that are turned": (TURNED_HEADS, [
        (17, """a = Transpose<perm=[1,2,3,0]>(k) b = Transpose<perm=[1,2,0,3]>(q) e = Mul(b, s6)
             g = Mul(a, t6) h = MatMul(e, g) s = Softmax(h) y = MatMul(s, v)"""),
        (17, """h = com.microsoft.FusedMatMul<transB=1, transBatchA=1, transBatchB=1, alpha=0.36>
             (q, k) s = Softmax(h) y = MatMul(s, v)"""),
    ]),
    "attention whose heads share keys": (HEADS.replace("3,6,8", "1,6,8"), [
        (23, "y = Attention(q, k, v)"),
        (17, f"""n = Reshape(k, alone) m = Expand(n, shared) j = Reshape(m, own)
             o = Reshape(v, alone) p = Expand(o, shared) i = Reshape(p, own)
             {SCALED.replace("(k,", "(j,")} s = Softmax(d) y = MatMul(s, i)"""),
    ]),
    "a recurrent layer": (STEPS, [
        (14, f"{results} = LSTM<hidden_size=4>(x, lx, lr{states})")
        for results, states in (("y", ""), ("y, h, e", ""), ("y", ", , , state, state"))
    ]),
    "parts of parts of parts": (X, [
        (13, f"{BRANCHES} y = Concat<axis=1>(a, b, e, x) z = Concat<axis=1>(b, e, a, b)"),
        (13, f"""{BRANCHES} d = Concat<axis=1>(b, e) g = Concat<axis=1>(a, d)
             y = Concat<axis=1>(g, x) z = Concat<axis=1>(d, a, b)"""),
        (13, f"""{BRANCHES} d = Concat<axis=1>(a, b) g = Concat<axis=1>(e, x)
             y = Concat<axis=1>(d, g) z = Concat<axis=1>(b, e, d)"""),
    ]),
    "an adaptive pooling": (X, [
        (13, f"y = AveragePool<kernel_shape=[3,3], strides=[3,3]{counted}>(x)")
        for counted in ("", ", count_include_pad=1")
    ]),
    "groups that are normalised": (X, [
        (17, """r = Reshape(x, pair) a = InstanceNormalization(r, g2, h2) d = Reshape(a, maps)
             e = Mul(d, kp) y = Add(e, lp)"""),
        (21, "y = GroupNormalization<num_groups=2>(x, k8, l8)"),
    ]),
    "axes turned before a view or behind it, there and back, and twice": (ROWS, [
        (13, """a = Relu(x) b = Transpose<perm=[0,2,1]>(a) z = Tanh(b) r = Reshape(b, behind)
             y = Softmax<axis=1>(r)"""),
        (13, """a = Relu(x) b = Transpose<perm=[0,2,1]>(a) z = Tanh(b) r = Reshape(a, cut)
             d = Transpose<perm=[0,2,3,1]>(r) y = Softmax<axis=1>(d)"""),
        (13, """a = Relu(x) b = Transpose<perm=[0,2,1]>(a) d = Transpose<perm=[0,2,1]>(b)
             e = Transpose<perm=[0,2,1]>(d) z = Tanh(e) r = Reshape(d, cut)
             g = Transpose<perm=[0,2,3,1]>(r) y = Softmax<axis=1>(g)"""),
    ]),
    "parts": (X, [
        (13, "a, b = Split<axis=1>(x) e = Add(a, half) d = Relu(b) y = Add(e, d)"),
        (13, """a = Slice(x, i0, i4, i1) b = Slice(x, i4, i8, i1) e = Add(a, half) d = Relu(b)
             y = Add(e, d)"""),
    ]),
    "the order of branches": (X, [
        (13, f"{branches} r = Conv(q, f2, c) t = Add(r, s) y = Relu(t)")
        for branches in (
            "p = Conv(x, f, c) q = Relu(p) s = Conv(x, f, c)",
            "s = Conv(x, f, c) p = Conv(x, f, c) q = Relu(p)",
        )
    ]),
}  # fmt: skip


def network_of(opset: int, text: str, inputs: str = X, constants: str = CONSTANTS) -> Network:
    outputs = "y, float[] z" if "z = " in text else "y"
    return read_network(model_of(text, inputs, outputs, opset, constants))


def lowered(networks: list[Network], target: str) -> list[str]:
    texts = []
    for network in networks:
        result = registry.lower(network, Target.parse(target))
        assert_accounted(network, result)
        texts.append(sign(result.network).text)
    return texts


def forms_in(networks: list[Network]) -> list[int]:
    """How many forms these have under each target."""
    return [len(set(lowered(networks, target))) for target in TARGETS]


def in_one_form(network: Network) -> Network:
    return Rewritten.of(network).then(FORMS).network


@pytest.mark.parametrize("what", SAME)
def test_one_computation_has_one_form(what: str) -> None:
    inputs, rows = SAME[what]
    networks = [network_of(*row, inputs) for row in rows]
    assert [*forms_in(networks), len({*lowered(networks, MIXED)})] == [1, 1, 1, 1]
    for once in map(in_one_form, networks):
        assert sign(in_one_form(once)) == sign(once)


def test_a_norm_that_onnx_runtime_joins_in_an_old_file_is_that_of_a_new_one() -> None:
    """It writes out what newer operator sets state as the default."""
    norms = [network_of(*row, ROWS) for row in SAME["layer norm"][1][:2]]
    new, old = lowered(norms, "here/onnxruntime-1.31/fp32/1t")
    assert new == old and new.count("LayerNormalization") == 1


ZEROS = "a = Relu(x) b = Pad(a, none) y = Tanh(b)"
IN_BIAS, FOLDED = "a = Conv(x, f, c)", "BatchNormalization(a, k8, l8, m8, v8)"
# Of each computation the ways to write it, and how many forms they have under each target.
ENGINES = {
    "a folded norm, and a bias or none": ([
        "a = Conv(x, f) y = Relu(a)", f"{IN_BIAS} y = Relu(a)",
        f"a = Conv(x, f) n = {FOLDED} y = Relu(n)",
        "a = Conv(x, f) m = Mul(a, kp) n = Add(m, lp) y = Relu(n)",
    ], [1, 3, 3]),
    "a scale of single channels": ([
        "a = Conv<group=8>(x, deep) y = Relu(a)",
        "a = Conv<group=8>(x, deep) m = Mul(a, kp) y = Relu(m)",
    ], [1, 2, 2]),
    "a layer's scale of channels": ([
        f"{IN_BIAS} y = Add(a, x)", f"{IN_BIAS} m = Mul(a, kp) y = Add(m, x)",
        f"{IN_BIAS} m = Mul(six, a) y = Add(m, x)",
    ], [1, 3, 3]),
    "a scale behind an activation or of rows": ([
        "a = Conv(x, f) y = Relu(a)", "a = Conv(x, f) r = Relu(a) y = Mul(r, kp)",
        "a = Conv(x, f) r = Mul(a, b6) y = Relu(r)",
    ], [3, 3, 3]),
    "a norm before a layer": ([
        "r = Relu(x) n = BatchNormalization(r, k8, l8, m8, v8) y = Relu(n)",
        "r = Relu(x) n = Mul(r, kp) y = Relu(n)",
    ], [1, 2, 2]),
    "a layer's scale behind a norm and a folded one": ([
        f"{IN_BIAS} m = Mul(a, kp) y = Add(m, x)",
        f"{IN_BIAS} n = {FOLDED} m = Mul(n, kp) y = Add(m, x)", f"{IN_BIAS} y = Add(a, x)",
    ], [1, 2, 2]),
    "a norm behind a product": ([
        f"p = GlobalAveragePool(x) r = Flatten(p) {text} y = Relu(n)" for text in (
            "a = Gemm(r, w, c) n = BatchNormalization(a, k8, l8, m8, v8)",
            "getitem = Gemm(r, w, c) n = Identity(getitem)", "n = Gemm(r, w, c)",
        )
    ], [1, 2, 2]),
    "a choice by a Not, which is a call eagerly": ([
        "d = Greater(x, half) n = Not(d) y = Where(n, x, zero)",
        "d = Greater(x, half) y = Where(d, zero, x)",
        "d = Greater(x, half) n = Not(d) m = Not(n) y = Where(m, zero, x)",
    ], [1, 3, 1]),
    "products by constants, each a call eagerly": ([
        "a = Mul(x, kp) b = Mul(a, half) y = Tanh(b)", "a = Mul(x, kp) y = Tanh(a)",
    ], [1, 2, 1]),
    "a product of which parts are read": ([
        f"r = Reshape(x, flat) j = MatMul(r, {n}) a, b = Split<axis=1>(j, i88) y = Add(a, b)"
        for n in ("wide", "_v_3")
    ], [2, 2, 2]),
    "a bias before a norm, which folded files lack": ([
        f"{IN_BIAS} n = {FOLDED} y = Relu(n)", f"a = Conv(x, f) n = {FOLDED} y = Relu(n)",
    ], [1, 1, 1]),
    "a pad of nothing, which is a call": (["a = Relu(x) y = Tanh(a)", ZEROS], [1, 2, 1]),
}  # fmt: skip


@pytest.mark.parametrize("what", ENGINES)
def test_each_engine_tells_apart_what_it_runs_otherwise(what: str) -> None:
    texts, forms = ENGINES[what]
    assert forms_in([network_of(17, text) for text in texts]) == forms


def of_names(bias: str, result: str, call: str = "") -> Network:
    """A convolution whose bias and result have these names.

    ``call`` are the arguments of the call that PyTorch's exporter keeps beside the operator.
    """
    body = f"{result} = Conv(x, f{bias and f', {bias}'}) n = Relu({result}) y = Relu(n)"
    file = model_of(body, X, constants=f"{CONSTANTS}, float[8] {bias or 'unread'}")
    if call:
        head = "%c : [num_users=1] = call_function[target=torch.ops.aten.conv2d.default](args = "
        kept = f"{head}(%x, %w{call}), kwargs = {{}})"
        file.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value=kept)
    return read_network(file)


@pytest.mark.parametrize(("call", "forms"), [(", %b", 1), (", None", 2)])
def test_zeros_that_an_exporter_leaves_out_are_put_back(call: str, forms: int) -> None:
    """PyTorch's keeps the call beside the operator: that of a bias that is there, and of none."""
    pair = [of_names("", "conv2d", call), of_names('"fc.bias"', "conv2d")]
    assert len({*lowered(pair, TARGETS[1])}) == forms


@pytest.mark.parametrize("target", TARGETS[1:])
def test_names_tell_of_a_folded_norm(target: str) -> None:
    names = [('"conv.weight_bias"', "conv2d"), ('"conv.bias"', "getitem_3"), ("", "getitem")]
    names += [('"onnx::Conv_123"', "r"), ("v8", '"m/bn/FusedBatchNormV3:0"')]
    names += [("v8", '"m/act/Relu;m/bn/FusedBatchNormV3;m/conv/BiasAdd"')]
    names += [("", '"m/bn/batchnorm/mul_1:0"'), ('"m/bn/batchnorm/sub:0"', "Conv__7")]
    names += [('"m/conv_bias_fused_bn"', "Conv__8"), ('"getitem_3_bias"', "r")]
    names += [('"/m/BatchNormalization_output_0_bias"', "r"), ('"ConvBnFusion_BN_B_m.bias"', "r")]
    biased = [('"conv.bias"', "conv2d"), ("v8", '"m/conv/BiasAdd:0"'), ("v8", '"m/conv/BiasAdd;m"')]
    forms = lowered([of_names(*pair) for pair in (*names, *biased)], target)
    folded, own = {*forms[: len(names)]}, {*forms[len(names) :]}
    assert len(folded) == len(own) == 1 and folded != own


SUMMED = """p = Conv(x, f, c) q = Relu(p) r = Conv(x, f2, c) b = GlobalAveragePool(x)
  g = Sigmoid(b) h = Tanh(x) a = Abs(h) i = Sigmoid(x) e = Abs(i)"""
ATTENDED = """k = Reshape(x, keys6) v = Reshape(x, head) m = MatMul(d, k) s = Softmax(m)
  o = MatMul(s, v) y = Reshape(o, maps)"""
ATTENDED_BY_TWO = "d = Transpose<perm=[0,2,1,3]>(h) " + ATTENDED.replace("6)", "3)", 1)
ATTENDED_BY_TWO = ATTENDED_BY_TWO.replace("head)", "heads)")
ROWS6 = "r = Reshape(x, rows6) a = MatMul(r, w6) e = Add(a, b6)"
FUSED = "r = Reshape(x, flat6) a = Gemm<transB=1>(r, w_weight_fused, w_bias_fused)"
SCALES = tuple(
    f"t = Transpose<perm=[0,1,3,2]>(x) {scores} p = Softmax(s) y = MatMul(p, x)"
    for scores in (
        "a = Mul(x, half) s = MatMul(a, t)",
        "m = MatMul(x, t) s = Div(m, two)",
        "a = Mul(x, s6) b = Mul(t, t6) s = MatMul(a, b)",
        "s = MatMul(x, t)",
    )
)
FRONT = "t = Transpose<perm=[1,0,2,3]>(x)"
MODULES = {
    "a simplifier folds a layer's scale": (
        "c1 = Conv(x, f, c) a = Mul(c1, kp) y = Relu(a)",
        "mul = Conv(x, mul_weight, mul_bias) y = Relu(mul)",
    ),
    "ONNX Runtime folds a layer's scale": (
        "c1 = Conv(x, f, c) a = Mul(c1, kp) y = Relu(a)",
        "mul = Conv(x, ConvMulFusion_W_f, ConvMulFusion_Mul_B_c) y = Relu(mul)",
    ),
    "ONNX Runtime folds a number behind a layer": (
        "c1 = Conv(x, f, c) a = Mul(c1, half) y = Relu(a)",
        "mul = Conv(x, ConvMulFusion_W_f, ConvMulFusion_Mul_B_val_1) y = Relu(mul)",
    ),
    "a simplifier folds a layer's scale where there are no norms": (
        "a = Conv(x, f, c) e = Relu(a) b = Conv(e, f, c) d = Mul(b, kp) y = Add(d, x)",
        "a = Conv(x, f, c) e = Relu(a) d = Conv(e, _v_1, _v_2) y = Add(d, x)",
    ),
    "a simplifier that names weights anew folds one": (
        'a = Conv(x, f, "onnx::Conv_1") b = Conv(a, f, c) d = Mul(b, kp) y = Conv(d, f2)',
        'a = Conv(x, f, "onnx::Conv_1") d = Conv(a, _v_1, _v_2) y = Conv(d, _v_4)',
    ),
    "a simplifier folds a number in front of a layer": (
        "a = Relu(x) d = Mul(a, half) y = Conv(d, f, c)",
        "a = Relu(x) y = Conv(a, _v_1, c)",
    ),
    "a simplifier folds one behind a norm": (
        "r = Conv(x, f) a = BatchNormalization(r, k8, l8, m8, v8) d = Mul(a, kp) y = Relu(d)",
        "[getitem_3] mul = Conv(x, mul_weight, mul_bias) y = Relu(mul)",
    ),
    "operands change places": (
        f"{SUMMED} s = Add(q, r) t = Mul(s, g) u = Add(a, e) y = Add(t, u)",
        f"{SUMMED} u = Add(e, a) s = Add(r, q) t = Mul(g, s) y = Add(u, t)",
    ),
    "sums begin with zero, factors are one, and one stands before a sum": (
        "a = Mul(x, kp) y = Add(a, lp)",
        "h = Add(x, zero) g = Mul(h, one) a = Mul(g, kp) d = Mul(a, one1) y = Add(d, lp)",
    ),
    "a simplifier folds the scale of a product": (
        f"{ROWS6} d = Mul(e, b6) g = Relu(d) y = Reshape(g, maps)",
        f"{FUSED} d = Reshape(a, rows6) e = Relu(d) y = Reshape(e, maps)",
    ),
    "a simplifier folds the scale of attention": (
        f"{ROWS6} h = Reshape(e, head) d = Mul(h, half) {ATTENDED}",
        f"{FUSED} d = Reshape(a, head) {ATTENDED}",
    ),
    "a simplifier folds the scale of attention in front of its views": (
        f"{ROWS6} g = Mul(e, half) h = Reshape(g, by_head) {ATTENDED_BY_TWO}",
        f"{FUSED} h = Reshape(a, by_head) {ATTENDED_BY_TWO}",
    ),
    "layers in front of folded norms share their weights": (
        'p = Conv(x, f, "onnx::Conv_1") q = Conv(p, f2, _v_2) y = Relu(q)',
        'p = Conv(x, f, "onnx::Conv_1") q = Conv(p, f, "onnx::Conv_1") y = Relu(q)',
    ),
    "attention scales before its product or behind it": SCALES,
    "a part of heads is taken before they are turned or behind": (
        "s = Slice(x, i0, i3, i3) r = Reshape(s, flat3) t = Transpose(r) y = Reshape(t, one144)",
        """r = Reshape(x, by_head) t = Transpose<perm=[2,0,3,1]>(r) s = Slice(t, i0, i1, i0)
        y = Reshape(s, one144)""",
        """r = Reshape(x, by_head) t = Transpose<perm=[2,0,3,1]>(r)
        s, u = Split<axis=0, num_outputs=2>(t) y = Reshape(s, one144)""",
    ),
    "an exporter turns an axis to the front and takes places there": (
        "a = Gather<axis=1>(x, spots) y = Relu(a)",
        f"{FRONT} g = GatherND(t, spots1) a = Transpose<perm=[1,0,2,3]>(g) y = Relu(a)",
    ),
    "an exporter writes a linear resize of rows with places": (
        'a = Resize<mode="linear", nearest_mode="floor">(x, , wider) y = Relu(a)',
        """l = Gather<axis=3>(x, low) h = Gather<axis=3>(x, high) d = Sub(h, l)
        m = Mul(nearness, d) a = Add(m, l) y = Relu(a)""",
        """t = Transpose<perm=[3,0,1,2]>(x) p = GatherND(t, low1) q = GatherND(t, high1)
        l = Transpose<perm=[1,2,3,0]>(p) h = Transpose<perm=[1,2,3,0]>(q) d = Sub(h, l)
        m = Mul(d, nearness) a = Add(l, m) y = Relu(a)""",
    ),
    "an exporter writes a view with strides": (
        "a = GlobalAveragePool(x) y = Relu(a)",
        "a = GlobalAveragePool(x) b = Reshape(a, i8) d = Gather(b, each) y = Relu(d)",
    ),
    "slices that a sum reads are a split": (
        "m, n = Split<axis=1>(x, i44) e = Add(m, n) y = Concat<axis=1>(e, n)",
        "m = Slice(x, i0, i4, i1) n = Slice(x, i4, i8, i1) e = Add(m, n) y = Concat<axis=1>(e, n)",
    ),
}


@pytest.mark.parametrize("what", MODULES)
def test_a_module_is_one_whatever_its_file_says(what: str) -> None:
    assert forms_in([network_of(21, text) for text in MODULES[what]])[1:] == [1, 1]


@pytest.mark.parametrize(
    ("target", "values"), [("v100/torch-1.12/fp32", "x"), ("v100/torch-2.9/fp32", "w6")]
)
def test_a_scale_is_a_call_where_attention_is_several(target: str, values: str) -> None:
    texts = [text.replace("(p, x)", f"(p, {values})") for text in SCALES]
    assert len({*lowered([network_of(17, text) for text in texts], target)}) == len(texts)


@pytest.mark.parametrize(("version", "forms"), [("8.2", 1), ("8.6", 2), ("9", 1), ("10", 1)])
def test_a_sum_of_convolutions_is_named_as_its_file_names_it_where_the_first_adds(
    version: str, forms: int
) -> None:
    pair = [
        network_of(17, f"p = Conv(x, f, c) q = Relu(p) r = Conv(x, f2, c) s = Conv(q, f, c) {text}")
        for text in ("y = Add(s, r)", "y = Add(r, s)")
    ]
    assert len({*lowered(pair, f"t4/tensorrt-{version}/fp16")}) == forms


@pytest.mark.parametrize("target", TARGETS[1:])
def test_an_operand_stays_first_that_decides_which_view_copies(target: str) -> None:
    turned = "a = Relu(x) b = Reshape(x, five) e = Relu(b) t = Transpose<perm=[1,0,2]>(e)"
    pair = [
        network_of(17, f"{turned} s = Add({sum_}) y = Reshape(s, flat)", ROWS)
        for sum_ in ("a, t", "t, a")
    ]
    assert len({*lowered(pair, target)}) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_a_gate_s_signature_is_lowered_as_its_file(target: str) -> None:
    files = [network_of(*row) for row in SAME["hard swish"][1]]
    assert lowered([read(sign(file).text) for file in files], target) == lowered(files, target)


def test_operators_of_other_domains_stay() -> None:
    """Their names may be ONNX's, what they compute is not."""
    for op, inputs in (("Swish", ("x", "x")), ("Mish", ("x", "x")), ("Slice", ("x",))):
        node = Node("", op, inputs, ("y",), domain="com.example")
        of_domain = Network("g", (node,), ("x",), ("y",), dict.fromkeys("xy", PIXELS))
        assert in_one_form(of_domain) == of_domain


@pytest.mark.parametrize("what", SAME)
def test_a_part_that_others_read_is_kept(what: str) -> None:
    inputs, rows = SAME[what]
    for network in [network_of(*row, inputs) for row in rows]:
        for part in network.producers.keys() - {*network.outputs}:
            reader = Node("", "Relu", (part,), ("read",), version=14)
            types = {**network.types, "read": network.types[part]}
            nodes, outputs = (*network.nodes, reader), network.outputs
            assert_kept(replace(network, outputs=(*outputs, part)))
            assert_kept(replace(network, nodes=nodes, types=types, outputs=(*outputs, "read")))


def assert_kept(network: Network) -> None:
    made = in_one_form(network)
    known = {"", *made.inputs, *made.constants, *made.producers}
    assert known.issuperset(name for node in made.nodes for name in node.inputs)
    assert made.producers.keys() >= {*made.outputs}
    assert [made.types[o] for o in made.outputs] == [network.types[o] for o in network.outputs]


@pytest.mark.parametrize("op", ["FusedConv", "FusedGemm", "FusedMatMul", "Attention"])
@pytest.mark.parametrize("read", ["x", "x, k8", "x, w, c, d8, k8, l8, m8, v8"])
def test_an_operator_of_onnx_runtime_that_lacks_what_it_reads_stays(op: str, read: str) -> None:
    """A file may state the sizes of what no engine runs."""
    made = model_of(f"a = com.microsoft.{op}({read}) y = Relu(a)", X, "y", 17, CONSTANTS)
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, PIXELS.shape))
    for target in TARGETS:
        lowered = registry.lower(read_network(made), Target.parse(target))
        assert {node.op for node in lowered.network.nodes} == {op, "Relu"}


OTHERS = [
    (23, HEADS, "y = Attention<softcap=2.0>(q, k, v)", "Attention"),
    (13, X, "a = HardSigmoid(x) y = Mul(x, a)", "Mul"),
    (13, X, "a = HardSigmoid<alpha=0.166667, beta=0.4>(x) y = Mul(x, a)", "Mul"),
    (13, X, "a = Add(x, three) b = Clip(a, zero, six) g = Div(b, three) y = Mul(x, g)", "Mul"),
    (13, X, "a = Add(x, three) b = Clip(a, zero, six) g = Mul(x, b) y = Mul(g, half)", "Mul"),
]


@pytest.mark.parametrize(("opset", "inputs", "text", "op"), OTHERS)
def test_what_is_of_another_kind_stays(opset: int, inputs: str, text: str, op: str) -> None:
    assert in_one_form(network_of(opset, text, inputs)).nodes[-1].op == op


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (f"{Z}, float[4,3] r", "y = Gemm(x, w3, r)"),
        (f"{Z}, float[4,3] r", "y = Gemm<transB=1>(x, w3t, r)"),
        (f"{ROWS}, float[10,8] r", "a = Reshape(x, flat) b = Gemm(a, w, r) y = Reshape(b, rows)"),
        (f"{ROWS}, float[8] r", "y = LayerNormalization(x, k8, r)"),
    ],
)
def test_a_computed_shift_is_read(inputs: str, text: str) -> None:
    made = in_one_form(network_of(17, text, inputs))
    assert "r" in {name for node in made.nodes for name in node.inputs}


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (STEPS, "t = Transpose<perm=[1,2,0]>(x) y = Flatten(t)"),
        (X, "r = Reshape(x, by_head) t = Transpose<perm=[2,0,3,1]>(r) y = Slice(t, i1, i2, i0)"),
        (ROWS, "t = Transpose<perm=[1,2,0]>(x) g = Gather<axis=1>(t, i1) y = Transpose(g)"),
        (ROWS, "r = Reshape(x, column) s = Slice(r, i2, i4, i1) y = Transpose(s)"),
        (ROWS, "r = Reshape(x, cut) t = Transpose(r) s = Slice(t, i0, i1, i1) y = Flatten(s)"),
    ],
)
def test_elements_lie_where_the_file_moves_them(inputs: str, text: str) -> None:
    file = network_of(13, text, inputs)
    moved = Rewritten.of(file).then((EARLY_PLACES, TURNS, EARLY_CUTS, TURNS)).network
    shape = file.types["x"].shape
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    models = [onnx.load_from_string(to_onnx(net, None)) for net in (file, moved)]
    ends = [[*ReferenceEvaluator(model).run(None, {"x": values})] for model in models]
    assert np.array_equal(ends[0][0], ends[1][0])
