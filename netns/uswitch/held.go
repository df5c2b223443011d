package uswitch

import "time"

// bufferSizes are those that held frames are kept in, for the usual MTUs.
var bufferSizes = [...]int{256, 1152, 1664, 2432, 4480, 9344, 1<<16 + 256}

// heldFrame is a frame that leaves later.
type heldFrame struct {
	bytes   []byte
	size    uint8 // index in bufferSizes
	dir     Direction
	partial bool
	port    int32
	epoch   uint32 // of the port: one that went down meanwhile lost the frame
}

type heldKey struct {
	due  time.Duration
	seq  uint64 // ties leave in the order they came
	slot uint32
}

func (k heldKey) before(o heldKey) bool {
	return k.due < o.due || (k.due == o.due && k.seq < o.seq)
}

// held is what leaves later, soonest first, within limits. Buffers are used again.
type held struct {
	maxFrames, maxBytes   int
	bytes                 int // of frames held or lent
	allocated             int // and of free buffers
	framesPeak, bytesPeak int

	heap  []heldKey
	slots []heldFrame
	free  []uint32
	seq   uint64
	pool  [len(bufferSizes)][][]byte
	lent  []heldFrame // taken, and not yet given back
}

// put copies b to be taken at due; false if there is no room.
func (h *held) put(due time.Duration, f heldFrame, b []byte) bool {
	class := 0
	for class < len(bufferSizes) && bufferSizes[class] < len(b) {
		class++
	}
	if class == len(bufferSizes) || len(h.heap) >= h.maxFrames || h.bytes+bufferSizes[class] > h.maxBytes {
		return false
	}
	f.size = uint8(class)
	f.bytes = append(h.buffer(class), b...)
	slot := uint32(len(h.slots))
	if k := len(h.free); k > 0 {
		slot, h.free = h.free[k-1], h.free[:k-1]
		h.slots[slot] = f
	} else {
		h.slots = append(h.slots, f)
	}
	h.push(heldKey{due, h.seq, slot})
	h.seq++
	h.framesPeak = max(h.framesPeak, len(h.heap))
	h.bytesPeak = max(h.bytesPeak, h.bytes)
	return true
}

func (h *held) buffer(class int) []byte {
	size := bufferSizes[class]
	h.bytes += size
	if p := &h.pool[class]; len(*p) > 0 {
		b := (*p)[len(*p)-1]
		*p = (*p)[:len(*p)-1]
		return b
	}
	if h.allocated += size; h.allocated > h.maxBytes { // free buffers of other sizes are in the way
		for i := range h.pool {
			h.allocated -= len(h.pool[i]) * bufferSizes[i]
			h.pool[i] = nil
		}
	}
	return make([]byte, 0, size)
}

// next is when the soonest frame leaves.
func (h *held) next() time.Duration {
	if len(h.heap) == 0 {
		return Never
	}
	return h.heap[0].due
}

// take returns a frame that is due. Its bytes are valid until giveBack.
func (h *held) take(now time.Duration) (heldFrame, bool) {
	if len(h.heap) == 0 || h.heap[0].due > now {
		return heldFrame{}, false
	}
	slot := h.pop().slot
	f := h.slots[slot]
	h.slots[slot] = heldFrame{}
	h.free = append(h.free, slot)
	h.lent = append(h.lent, f)
	return f, true
}

// giveBack makes the buffers of all frames taken usable again.
func (h *held) giveBack() {
	for i := range h.lent {
		f := &h.lent[i]
		h.bytes -= bufferSizes[f.size]
		h.pool[f.size] = append(h.pool[f.size], f.bytes[:0])
		f.bytes = nil
	}
	h.lent = h.lent[:0]
}

func (h *held) push(k heldKey) {
	h.heap = append(h.heap, k)
	i := len(h.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !k.before(h.heap[up]) {
			break
		}
		h.heap[i] = h.heap[up]
		i = up
	}
	h.heap[i] = k
}

func (h *held) pop() heldKey {
	top := h.heap[0]
	n := len(h.heap) - 1
	k := h.heap[n]
	h.heap = h.heap[:n]
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h.heap[child+1].before(h.heap[child]) {
			child++
		}
		if !h.heap[child].before(k) {
			break
		}
		h.heap[i] = h.heap[child]
		i = child
	}
	if n > 0 {
		h.heap[i] = k
	}
	return top
}
