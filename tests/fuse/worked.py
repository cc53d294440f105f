"""The worked graphs: one per way in which matching by pipeline position goes wrong.

Canonical ONNX text; inputs named w*, b*, k* become seeded constants (tests/dfg/canonical.py). Node
names are what expectations are written in.
"""

_CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
_POOL = "MaxPool<kernel_shape=[2,2],strides=[2,2]>"
_SAME_POOL = "MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>"
_UPSAMPLE = (
    'Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">'
)
_X = "float[1,4,8,8] x"
_W = "float[4,4,3,3]"

GRAPHS = {
    "G1": f"""g ({_X}, {_W} w1, float[4] b1) => (float[1,4,2,2] y) {{
        [conv] a = {_CONV}(x, w1, b1)
        [relu_1] r = Relu(a)
        [pool_1] p = {_POOL}(r)
        [relu_2] q = Relu(p)
        [pool_2] y = {_POOL}(q) }}""",
    "G2": f"""g ({_X}, float[1,4,8,8] s1, float[1,4,8,8] s2, {_W} w1, float[4] b1)
        => (float[1,4,8,8] y) {{
        [conv] a = {_CONV}(x, w1, b1)
        [add_1] b = Add(a, s1)
        [relu] r = Relu(b)
        [add_2] y = Add(r, s2) }}""",
    "G3": f"""g ({_X}, float[1,4,8,8] skip, {_W} w1) => (float[1,4,8,8] y) {{
        [conv] a = {_CONV}(x, w1)
        [add] b = Add(a, skip)
        [relu] y = Relu(b) }}""",
    "G4": f"""g ({_X}, {_W} w1, float[4] b1, {_W} w2, float[4] b2) => (float[1,8,8,8] y)
        <float[4] scales = {{1.0, 1.0, 2.0, 2.0}}> {{
        [conv_1] a = {_CONV}(x, w1, b1)
        [relu] r = Relu(a)
        [pool] p = {_POOL}(r)
        [conv_2] c = {_CONV}(p, w2, b2)
        [upsample] u = {_UPSAMPLE}(c, , scales)
        [concat] y = Concat<axis=1>(u, r) }}""",
    "G4_se": f"""g ({_X}, {_W} w1, float[4] b1, float[4,4] w2, float[4] b2) => (float[1,4,8,8] y)
        <int64[2] flat = {{1, 4}}, int64[4] map = {{1, 4, 1, 1}}> {{
        [conv] a = {_CONV}(x, w1, b1)
        [relu] r = Relu(a)
        [gap] p = GlobalAveragePool(r)
        [flatten] f = Reshape(p, flat)
        [fc] c = Gemm<transB=1>(f, w2, b2)
        [sigmoid] s = Sigmoid(c)
        [unflatten] m = Reshape(s, map)
        [scale] y = Mul(r, m) }}""",
    "G5": f"""g ({_X}, {_W} w1, float[4] b1, {_W} w2, float[4] b2) => (float[1,4,8,8] y) {{
        [conv_1] a = {_CONV}(x, w1, b1)
        [relu] r = Relu(a)
        [pool] p = {_SAME_POOL}(r)
        [conv_2] c = {_CONV}(r, w2, b2)
        [add] y = Add(p, c) }}""",
    "G6": f"""g ({_X}, {_W} w0, {_W} w1, float[4,8,3,3] w9) => (float[1,4,8,8] y) {{
        [conv_0] a = {_CONV}(x, w0)
        [relu] r = Relu(a)
        [conv_b0] c = {_CONV}(r, w1)
        [pool] p = {_SAME_POOL}(r)
        [concat] d = Concat<axis=1>(c, p)
        [conv_9] y = {_CONV}(d, w9) }}""",
    "G7": f"""g ({_X}, {_W} w0, {_W} w1) => (float[1,4,8,8] y, float[1,256] z)
        <int64[2] flat = {{1, 256}}> {{
        [conv_0] a = {_CONV}(x, w0)
        [relu_0] r = Relu(a)
        [conv_h1] c = {_CONV}(r, w1)
        [relu_1] y = Relu(c)
        [flatten] z = Reshape(r, flat) }}""",
    "G8": f"""g (float[1,4,8,8] a, float[1,4,8,8] d, {_W} w1, {_W} w2) => (float[1,4,8,8] y) {{
        [conv_a] p = {_CONV}(a, w1)
        [conv_b] q = {_CONV}(d, w2)
        [add] y = Add(p, q) }}""",
    "G9": f"""g ({_X}, float[4,1,1] k1, float[4,1,1] k2, {_W} w1) => (float[1,4,8,8] y) {{
        [scale] a = Mul(x, k1)
        [shift] b = Add(a, k2)
        [relu] r = Relu(b)
        [conv] y = {_CONV}(r, w1) }}""",
    "G9_concat": f"""g ({_X}, float[1,4,8,8] z, float[4,8,3,3] w1) => (float[1,4,8,8] y) {{
        [concat] a = Concat<axis=1>(x, z)
        [relu] r = Relu(a)
        [conv] y = {_CONV}(r, w1) }}""",
    "G10": f"""g ({_X}, {_W} w1, float[4] b1) => (float[1,4,8,8] y) {{
        [conv] a = {_CONV}(x, w1, b1)
        [relu] r = Relu(a)
        [pool] p = {_SAME_POOL}(r)
        [add] y = Add(r, p) }}""",
    "G11": f"""g ({_X}, {_W} w1, float[4] b1) => (float[1,4,5,5] y)
        <int64[8] pads = {{0, 0, 1, 1, 0, 0, 1, 1}}, float minus = {{-1.0}}> {{
        [conv] a = {_CONV}(x, w1, b1)
        [relu] r = Relu(a)
        [pad] p = Pad(r, pads, minus)
        [pool] y = {_POOL}(p) }}""",
    "G12": f"""g (float[1,4,6,6] a, float[1,4,8,8] c, {_W} w1) => (float[1,4,8,8] y)
        <int64[8] pads = {{0, 0, 1, 1, 0, 0, 1, 1}}> {{
        [pad] p = Pad(a, pads)
        [conv] q = {_CONV}(c, w1)
        [add] y = Add(p, q) }}""",
    "G13": f"""g (float[1,8,8,8] x, {_W} w1) => (float[1,4,8,8] y, float[1,4,8,8] z) {{
        [split] a, z = Split<axis=1>(x)
        [conv] y = {_CONV}(a, w1) }}""",
    "G14": f"""g ({_X}, {_W} w1, {_W} w2) => (float[1,4,8,8] r, float[1,4,8,8] y) {{
        [conv_1] a = {_CONV}(x, w1)
        [relu] r = Relu(a)
        [conv_2] y = {_CONV}(r, w2) }}""",
    "G15": f"""g ({_X}, {_W} w1, {_W} w3) => (float[1,4,8,8] y) {{
        [conv_1] a = {_CONV}(x, w1)
        [relu] r = Relu(a)
        [conv_3] c = {_CONV}(r, w3)
        [add] y = Add(c, x) }}""",
    # Reference A.4, items 1 and 5.
    "two_outputs": f"""g ({_X}, {_W} w1) => (float[1,4,8,8] y, float[1,4,4,4] z) {{
        [conv] a = {_CONV}(x, w1)
        [relu] y = Relu(a)
        [pool] z = {_POOL}(x) }}""",
    "circle": f"""g ({_X}, {_W} w1) => (float[1,4,8,8] y) {{
        [conv] a = {_CONV}(x, w1)
        [relu] r = Relu(a)
        [sigmoid] s = Sigmoid(r)
        [add] y = Add(r, s) }}""",
    # A ResNet shortcut of type A: the pad widens channels.
    "channel_pad": f"""g ({_X}, {_W} w0, float[8,4,3,3] w1) => (float[1,8,8,8] y)
        <int64[8] pads = {{0, 2, 0, 0, 0, 2, 0, 0}}> {{
        [conv_0] a = {_CONV}(x, w0)
        [relu_0] r = Relu(a)
        [conv_1] c = {_CONV}(r, w1)
        [pad] p = Pad(r, pads)
        [add] b = Add(p, c)
        [relu_1] y = Relu(b) }}""",
}
