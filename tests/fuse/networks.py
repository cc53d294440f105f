"""Topologies of published networks as canonical text (weights do not matter to the matcher)."""


def tiny_yolo() -> str:
    """tiny-yolo for licence plates: nine convolutions, leaky relu on all but the last, six
    max-pools.
    """
    channels = [3, 16, 32, 64, 128, 256, 512, 1024, 1024, 30]
    strides = [2, 2, 2, 2, 2, 1]
    weights, nodes, value, size = [], [], "x", 416
    for i in range(9):
        kernel = 3 if i < 8 else 1
        pad = kernel // 2
        weights += [f"float[{channels[i + 1]},{channels[i]},{kernel},{kernel}] w{i}"]
        weights += [f"float[{channels[i + 1]}] b{i}"]
        attrs = f"kernel_shape=[{kernel},{kernel}],pads=[{pad},{pad},{pad},{pad}]"
        nodes.append(f"[conv_{i}] c{i} = Conv<{attrs}>({value}, w{i}, b{i})")
        value = f"c{i}"
        if i < 8:
            nodes.append(f"[leaky_{i}] l{i} = LeakyRelu<alpha=0.125>({value})")
            value = f"l{i}"
        if i < 6:
            end = 0 if strides[i] == 2 else 1
            step = strides[i]
            attrs = f"kernel_shape=[2,2],strides=[{step},{step}],pads=[0,0,{end},{end}]"
            nodes.append(f"[pool_{i}] p{i} = MaxPool<{attrs}>({value})")
            value, size = f"p{i}", size // step
    head = f"tiny_yolo (float[1,3,416,416] x, {', '.join(weights)})"
    return f"{head} => (float[1,30,{size},{size}] {value}) {{\n" + "\n".join(nodes) + "}"


def resnet_20() -> str:
    """ResNet-20 for 32x32 images with 1x1 convolutions as shortcuts where the size changes."""
    weights, nodes = [], []

    def conv(name: str, source: str, ic: int, oc: int, kernel: int, stride: int) -> str:
        pad = kernel // 2
        weights.append(f"float[{oc},{ic},{kernel},{kernel}] w{name}")
        weights.append(f"float[{oc}] b{name}")
        attrs = f"kernel_shape=[{kernel},{kernel}],strides=[{stride},{stride}],"
        attrs += f"pads=[{pad},{pad},{pad},{pad}]"
        nodes.append(f"[conv{name}] c{name} = Conv<{attrs}>({source}, w{name}, b{name})")
        return f"c{name}"

    def relu(name: str, source: str) -> str:
        nodes.append(f"[relu{name}] r{name} = Relu({source})")
        return f"r{name}"

    value, ic = relu("_in", conv("_in", "x", 3, 16, 3, 1)), 16
    for stage, oc in enumerate((16, 32, 64)):
        for block in range(3):
            name = f"_{stage}_{block}"
            stride = 2 if ic != oc else 1
            main = relu(f"{name}a", conv(f"{name}a", value, ic, oc, 3, stride))
            main = conv(f"{name}b", main, oc, oc, 3, 1)
            short = value if ic == oc else conv(f"{name}s", value, ic, oc, 1, stride)
            nodes.append(f"[add{name}] a{name} = Add({main}, {short})")
            value, ic = relu(name, f"a{name}"), oc
    nodes.append(f"[pool] p = GlobalAveragePool({value})")
    nodes.append("[flatten] f = Reshape(p, flat)")
    nodes.append("[fc] y = Gemm<transB=1>(f, w, b)")
    weights += ["float[10,64] w", "float[10] b"]
    head = f"resnet_20 (float[1,3,32,32] x, {', '.join(weights)})"
    body = "\n".join(nodes)
    return f"{head} => (float[1,10] y) <int64[2] flat = {{1, 64}}> {{\n{body}}}"
