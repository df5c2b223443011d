package uswitch

import "time"

// bufferSizes are the buffer sizes of delayed frames, for the usual MTUs.
var bufferSizes = [...]int{256, 1152, 1664, 2432, 4480, 9344, 1<<16 + 256}

// delayedFrame is a frame to be forwarded later.
type delayedFrame struct {
	bytes   []byte
	class   uint8 // index in bufferSizes
	dir     Direction
	partial bool
	port    int32
	epoch   uint32 // of the port: frames are dropped if it went down
}

type delayKey struct {
	due  time.Duration
	seq  uint64 // ties are sent in FIFO order
	slot uint32
}

func (k delayKey) before(o delayKey) bool {
	return k.due < o.due || (k.due == o.due && k.seq < o.seq)
}

// delayQueue is a priority queue of delayed frames, limited in frames and bytes. It pools buffers.
type delayQueue struct {
	maxFrames, maxBytes   int
	bytes                 int // buffers of queued and lent frames
	allocated             int // bytes and the free buffers
	framesPeak, bytesPeak int

	heap  []delayKey
	slots []delayedFrame
	free  []uint32
	seq   uint64
	pool  [len(bufferSizes)][][]byte
	lent  []delayedFrame // returned by take since releaseLent
}

// put adds frame f with a copy of b, for the time due; false if the queue is full or b too long.
func (h *delayQueue) put(due time.Duration, f delayedFrame, b []byte) bool {
	class := 0
	for class < len(bufferSizes) && bufferSizes[class] < len(b) {
		class++
	}
	if class == len(bufferSizes) || len(h.heap) >= h.maxFrames || h.bytes+bufferSizes[class] > h.maxBytes {
		return false
	}
	f.class = uint8(class)
	f.bytes = append(h.buffer(class), b...)
	slot := uint32(len(h.slots))
	if k := len(h.free); k > 0 {
		slot, h.free = h.free[k-1], h.free[:k-1]
		h.slots[slot] = f
	} else {
		h.slots = append(h.slots, f)
	}
	h.push(delayKey{due, h.seq, slot})
	h.seq++
	h.framesPeak = max(h.framesPeak, len(h.heap))
	h.bytesPeak = max(h.bytesPeak, h.bytes)
	return true
}

// buffer returns an empty buffer of a size class, from the pool of free buffers if that has one.
func (h *delayQueue) buffer(class int) []byte {
	size := bufferSizes[class]
	h.bytes += size
	if p := &h.pool[class]; len(*p) > 0 {
		b := (*p)[len(*p)-1]
		*p = (*p)[:len(*p)-1]
		return b
	}
	if h.allocated += size; h.allocated > h.maxBytes { // release all free buffers, which have other sizes
		for i := range h.pool {
			h.allocated -= len(h.pool[i]) * bufferSizes[i]
			h.pool[i] = nil
		}
	}
	return make([]byte, 0, size)
}

// next returns when the first frame is due.
func (h *delayQueue) next() time.Duration {
	if len(h.heap) == 0 {
		return Never
	}
	return h.heap[0].due
}

// take removes and returns the first frame that is due; false if none is. The bytes of the frame
// are valid until releaseLent.
func (h *delayQueue) take(now time.Duration) (delayedFrame, bool) {
	if len(h.heap) == 0 || h.heap[0].due > now {
		return delayedFrame{}, false
	}
	slot := h.pop().slot
	f := h.slots[slot]
	h.slots[slot] = delayedFrame{}
	h.free = append(h.free, slot)
	h.lent = append(h.lent, f)
	return f, true
}

// releaseLent returns the buffers of all taken frames to the pool.
func (h *delayQueue) releaseLent() {
	for i := range h.lent {
		f := &h.lent[i]
		h.bytes -= bufferSizes[f.class]
		h.pool[f.class] = append(h.pool[f.class], f.bytes[:0])
		f.bytes = nil
	}
	h.lent = h.lent[:0]
}

// push adds a key to the binary heap.
func (h *delayQueue) push(k delayKey) {
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

// pop removes and returns the least key of the heap.
func (h *delayQueue) pop() delayKey {
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
