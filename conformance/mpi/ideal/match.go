package ideal

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// msg is a message in flight, or unexpected at its destination.
type msg struct {
	source, tag int
	data        []byte // the send buffer until the send is complete
	sync        bool
	buffered    bool
	ready       bool
	send        *request // nil when the send is complete
	sender      *proc
	dropped     bool
}

// wire carries the messages from one rank to another in one communicator, in order.
type wire struct {
	src, dst int // of the world
	to       *recvQueues
	queue    []*msg
}

// recvQueues are the unexpected messages and posted receives of a rank in a communicator.
type recvQueues struct {
	posted     []*request
	unexpected []*msg
	wires      map[int]*wire // by source
	count      int
}

// enqueue puts a message on the wire to a rank.
func (w *world) enqueue(src, dst int, to *recvQueues, m *msg) {
	if to.wires == nil {
		to.wires = make(map[int]*wire)
	}
	x := to.wires[src]
	if x == nil {
		x = &wire{src: src, dst: dst, to: to}
		to.wires[src] = x
	}
	if len(x.queue) == 0 {
		w.wires = append(w.wires, x)
	}
	x.queue = append(x.queue, m)
}

// deliver delivers the next message of a wire, and reports whether it could.
func (w *world) deliver(x *wire) bool {
	if !w.canReceive(x.dst) {
		return false
	}
	k := w.next(x)
	m := x.queue[k]
	if w.Defects.LargeNeedsWait && m.send != nil && len(m.data) > 4096 && !m.send.awaited {
		return false
	}
	x.queue = slices.Delete(x.queue, k, k+1)
	if len(x.queue) == 0 {
		w.wires = slices.DeleteFunc(w.wires, func(y *wire) bool { return y == x })
	}
	switch {
	case m.dropped:
		return true
	case w.Defects.EmptyDropped && len(m.data) == 0, w.Defects.SelfLost && x.src == x.dst,
		w.Defects.ReadyLost && m.ready, w.Defects.FloodLost && len(x.to.unexpected) >= 500:
		m.releaseSendBuffer()
		return true
	}
	if w.Defects.SyncOnArrival && m.sync {
		m.send.finish(nil)
	}
	x.to.count++
	if k := slices.IndexFunc(x.to.posted, func(r *request) bool { return w.matches(r, m) }); k >= 0 {
		r := x.to.posted[w.preferred(x.to.posted, m, k)]
		x.to.posted = slices.DeleteFunc(x.to.posted, func(o *request) bool { return o == r })
		if w.Defects.ProbeSeesMatched {
			x.to.unexpected = append(x.to.unexpected, m.copyOf(m.data))
		}
		w.completeRecv(r, m)
		return true
	}
	x.to.unexpected = append(x.to.unexpected, m)
	return true
}

// next returns the index of the message that arrives next: the first, without a defect.
func (w *world) next(x *wire) int {
	n := len(x.queue)
	if n < 2 {
		return 0
	}
	a, b := x.queue[0], x.queue[1]
	rare := x.to.count%256 == 255
	switch {
	case w.Defects.Overtakes && w.rng.IntN(2) == 0,
		w.Defects.OvertakesRarely && rare,
		w.Defects.SmallOvertakes && len(a.data) > 4096 && len(b.data) <= 4096,
		w.Defects.LargeOvertakes && len(a.data) <= 4096 && len(b.data) > 4096,
		w.Defects.SyncOvertaken && a.sync && !b.sync,
		w.Defects.EmptyOvertakes && len(b.data) == 0 && len(a.data) > 0:
		return 1
	}
	return 0
}

// preferred returns which of the matching receives gets a message: k, the one that was
// posted first, without a defect.
func (w *world) preferred(posted []*request, m *msg, k int) int {
	for i, r := range posted {
		if i <= k || !w.matches(r, m) {
			continue
		}
		wild := func(r *request) bool { return r.peer == mpi.AnySource || r.tag == mpi.AnyTag }
		switch {
		case w.Defects.PostedLastFirst,
			w.Defects.ExactFirst && wild(posted[k]) && !wild(r),
			w.Defects.WildFirst && !wild(posted[k]) && wild(r):
			k = i
		}
	}
	return k
}

// matches reports whether a receive matches a message.
func (w *world) matches(r *request, m *msg) bool {
	return (r.peer == mpi.AnySource || r.peer == m.source || w.Defects.SourceIgnored) &&
		(r.tag == mpi.AnyTag || r.tag == m.tag || w.Defects.TagIgnored || w.Defects.TagCut && r.tag&0x7fff == m.tag&0x7fff)
}

// find returns the index of the unexpected message for a receive or probe, the first that matches, or -1.
func (w *world) find(q *recvQueues, source, tag int) int {
	r := &request{peer: source, tag: tag}
	k := slices.IndexFunc(q.unexpected, func(m *msg) bool { return w.matches(r, m) })
	for i, m := range q.unexpected {
		if k < 0 || i <= k || !w.matches(r, m) {
			continue
		}
		if w.Defects.UnexpectedLastFirst || w.Defects.UnexpectedByTag && m.tag < q.unexpected[k].tag {
			k = i
		}
	}
	return k
}

// post completes a receive with an unexpected message, or appends it to the posted receives.
func (w *world) post(q *recvQueues, r *request) {
	if k := w.find(q, r.peer, r.tag); k >= 0 {
		m := q.unexpected[k]
		q.unexpected = slices.Delete(q.unexpected, k, k+1)
		w.completeRecv(r, m)
		return
	}
	q.posted = append(q.posted, r)
}

// completeRecv completes a receive with a message.
func (w *world) completeRecv(r *request, m *msg) {
	d := m.data
	if w.Defects.ReadyEmpty && m.ready {
		d = nil
	}
	n := copy(r.buf, d)
	switch {
	case w.Defects.LastByteLost && n > 1:
		r.buf[n-1] = 0
	case w.Defects.LargeDamaged && n > 65536:
		r.buf[n/2] ^= 1
	case w.Defects.RaggedLost && n%8 != 0:
		clear(r.buf[n&^7 : n])
	case w.Defects.BufferWiped:
		clear(r.buf[n:])
	case w.Defects.MiddleDamaged && n > 8:
		r.buf[n/2] ^= 1
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: n}
	if w.Defects.WildSourceUntold && r.peer == mpi.AnySource {
		st.Source = mpi.AnySource
	}
	if w.Defects.WildTagUntold && r.tag == mpi.AnyTag {
		st.Tag = mpi.AnyTag
	}
	if w.Defects.CountIsRoom {
		st.Count = len(r.buf)
	}
	if w.Defects.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	var err error
	if len(d) > len(r.buf) {
		if !w.Defects.TruncatesSilently {
			err = mpi.ErrTruncate
		}
		if w.Defects.TruncateCountsAll {
			st.Count = len(d)
		}
		if w.Defects.TruncateWedges {
			r.c.failure = mpi.ErrTruncate
		}
		if w.Defects.TruncateFailsSender && m.send != nil {
			m.send.err = mpi.ErrTruncate
		}
		if w.Defects.TruncateKeepsRest {
			rest := m.copyOf(slices.Clone(d[len(r.buf):]))
			r.queues.unexpected = slices.Insert(r.queues.unexpected, 0, rest)
		}
	}
	r.st = st
	r.finish(err)
	m.releaseSendBuffer()
}

// copyOf returns a message with the same envelope and other data, which completes no send.
func (m *msg) copyOf(data []byte) *msg {
	return &msg{source: m.source, tag: m.tag, data: data, send: &request{}, sender: m.sender}
}

// releaseSendBuffer notes that the send buffer of a message is no longer needed.
func (m *msg) releaseSendBuffer() {
	if m.buffered && !m.sender.Defects.BufferLeaks {
		m.sender.used -= len(m.data) + overhead
	}
	if m.send != nil {
		m.send.finish(m.send.err)
	}
}

// overhead is the buffer space of a buffered message besides its data.
const overhead = 64
