package rd

import "github.com/fabrictest/fabrictest/emu/mono"

// timerHeap orders all peers by their next deadline. Deadlines often move later: the peer then
// keeps its position, and due corrects it when that position is reached. Every peer is in the
// heap, since each has at least the deadline of its removal.
type timerHeap struct{ heap []*Peer }

// next returns the earliest deadline, or an earlier time; mono.Never without peers.
func (h *timerHeap) next() mono.Time {
	if len(h.heap) == 0 {
		return mono.Never
	}
	return h.heap[0].heapAt
}

// due returns a peer whose deadline has passed, or nil. The peer stays in the heap: the caller
// handles it and calls update.
func (h *timerHeap) due(now mono.Time) *Peer {
	for len(h.heap) > 0 && h.heap[0].heapAt <= now {
		p := h.heap[0]
		at := p.deadline()
		if at <= now {
			return p
		}
		p.heapAt = at // it moved since
		h.down(0)
	}
	return nil
}

// put adds a peer.
func (h *timerHeap) put(p *Peer) {
	p.heapAt = p.deadline()
	p.heapIndex = int32(len(h.heap))
	h.heap = append(h.heap, p)
	h.up(len(h.heap) - 1)
}

// moveUp moves p forward if its deadline is now earlier than its position.
func (h *timerHeap) moveUp(p *Peer) {
	if at := p.deadline(); at < p.heapAt {
		p.heapAt = at
		h.up(int(p.heapIndex))
	}
}

// update moves p to the position of its deadline.
func (h *timerHeap) update(p *Peer) {
	p.heapAt = p.deadline()
	h.up(int(p.heapIndex))
	h.down(int(p.heapIndex))
}

// remove removes p, for which Gone is then true.
func (h *timerHeap) remove(p *Peer) {
	i, last := int(p.heapIndex), len(h.heap)-1
	h.swap(i, last)
	h.heap[last] = nil
	h.heap = h.heap[:last]
	p.heapIndex = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

// less orders equal deadlines by age, so that the order is deterministic.
func (h *timerHeap) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.heapAt < b.heapAt || a.heapAt == b.heapAt && a.number < b.number
}

func (h *timerHeap) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].heapIndex, h.heap[j].heapIndex = int32(i), int32(j)
}

func (h *timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *timerHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
