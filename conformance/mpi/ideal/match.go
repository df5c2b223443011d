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
	of          *request // the send
	sender      *proc
	dropped     bool
}

// wire carries the messages from one rank to another in one communicator, in order.
type wire struct {
	src, dst int // of the world
	to       *box
	queue    []*msg
}

// box has the unexpected messages and posted receives of a rank in a communicator.
type box struct {
	posted     []*request
	unexpected []*msg
	wires      map[int]*wire // by source
	count      int
}

// enqueue puts a message on the wire to a rank.
func (w *world) enqueue(src, dst int, to *box, m *msg) {
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

// deliver delivers the next message of a wire, if it can.
func (w *world) deliver(x *wire) bool {
	if !w.canReceive(x.dst) {
		return false
	}
	k := w.next(x)
	m := x.queue[k]
	if w.defects.LargeNeedsWait && m.of != nil && len(m.data) > 4096 && !m.of.awaited {
		return false
	}
	x.queue = slices.Delete(x.queue, k, k+1)
	if len(x.queue) == 0 {
		w.wires = slices.DeleteFunc(w.wires, func(y *wire) bool { return y == x })
	}
	defects := w.defects
	switch {
	case m.dropped:
		return true
	case defects.EmptyDropped && len(m.data) == 0, defects.SelfLost && x.src == x.dst,
		defects.ReadyLost && m.ready, defects.FloodLost && len(x.to.unexpected) >= 500:
		m.releaseSendBuffer()
		return true
	}
	if defects.SyncOnArrival && m.sync {
		m.of.finish(nil)
	}
	x.to.count++
	if k := slices.IndexFunc(x.to.posted, func(r *request) bool { return w.matches(r, m) }); k >= 0 {
		r := x.to.posted[w.preferred(x.to.posted, m, k)]
		x.to.posted = slices.DeleteFunc(x.to.posted, func(o *request) bool { return o == r })
		if defects.ProbeSeesMatched {
			x.to.unexpected = append(x.to.unexpected, &msg{source: m.source, tag: m.tag, data: m.data, of: &request{p: m.sender}, sender: m.sender})
		}
		w.fill(r, m)
		return true
	}
	x.to.unexpected = append(x.to.unexpected, m)
	return true
}

// next returns the index of the message that arrives next: the first, without a defect.
func (w *world) next(x *wire) int {
	defects, n := w.defects, len(x.queue)
	if n < 2 {
		return 0
	}
	a, b := x.queue[0], x.queue[1]
	rare := x.to.count%256 == 255
	switch {
	case defects.Overtakes && w.rng.IntN(2) == 0,
		defects.OvertakesRarely && rare,
		defects.SmallOvertakes && len(a.data) > 4096 && len(b.data) <= 4096,
		defects.LargeOvertakes && len(a.data) <= 4096 && len(b.data) > 4096,
		defects.SyncOvertaken && a.sync && !b.sync,
		defects.EmptyOvertakes && len(b.data) == 0 && len(a.data) > 0:
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
		wild := func(r *request) bool { return r.source == mpi.AnySource || r.tag == mpi.AnyTag }
		switch {
		case w.defects.PostedLastFirst,
			w.defects.ExactFirst && wild(posted[k]) && !wild(r),
			w.defects.WildFirst && !wild(posted[k]) && wild(r):
			k = i
		}
	}
	return k
}

// matches reports whether a receive matches a message.
func (w *world) matches(r *request, m *msg) bool {
	defects := w.defects
	return (r.source == mpi.AnySource || r.source == m.source || defects.SourceIgnored) &&
		(r.tag == mpi.AnyTag || r.tag == m.tag || defects.TagIgnored || defects.TagCut && r.tag&0x7fff == m.tag&0x7fff)
}

// find returns the unexpected message for a receive or probe: the first that matches.
func (w *world) find(b *box, source, tag int) int {
	r := &request{source: source, tag: tag}
	k := slices.IndexFunc(b.unexpected, func(m *msg) bool { return w.matches(r, m) })
	for i, m := range b.unexpected {
		if k < 0 || i <= k || !w.matches(r, m) {
			continue
		}
		if w.defects.UnexpectedLastFirst || w.defects.UnexpectedByTag && m.tag < b.unexpected[k].tag {
			k = i
		}
	}
	return k
}

// post posts a receive.
func (w *world) post(b *box, r *request) {
	if k := w.find(b, r.source, r.tag); k >= 0 {
		m := b.unexpected[k]
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
		w.fill(r, m)
		return
	}
	b.posted = append(b.posted, r)
}

// fill completes a receive with a message.
func (w *world) fill(r *request, m *msg) {
	defects := w.defects
	d := m.data
	if defects.ReadyEmpty && m.ready {
		d = nil
	}
	n := copy(r.buf, d)
	switch {
	case defects.LastByteLost && n > 1:
		r.buf[n-1] = 0
	case defects.LargeDamaged && n > 65536:
		r.buf[n/2] ^= 1
	case defects.RaggedLost && n%8 != 0:
		clear(r.buf[n&^7 : n])
	case defects.BufferWiped:
		clear(r.buf[n:])
	case defects.MiddleDamaged && n > 8:
		r.buf[n/2] ^= 1
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: n}
	if defects.WildSourceUntold && r.source == mpi.AnySource {
		st.Source = mpi.AnySource
	}
	if defects.WildTagUntold && r.tag == mpi.AnyTag {
		st.Tag = mpi.AnyTag
	}
	if defects.CountIsRoom {
		st.Count = len(r.buf)
	}
	if defects.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	var err error
	if len(d) > len(r.buf) {
		if !defects.TruncatesSilently {
			err = mpi.ErrTruncate
		}
		if defects.TruncateCountsAll {
			st.Count = len(d)
		}
		if defects.TruncateWedges {
			r.p.failure = mpi.ErrTruncate
		}
		if defects.TruncateFailsSender && m.of != nil {
			m.of.err = mpi.ErrTruncate
		}
		if defects.TruncateKeepsRest {
			rest := &msg{source: m.source, tag: m.tag, data: slices.Clone(d[len(r.buf):]), of: &request{p: m.sender}, sender: m.sender}
			r.box.unexpected = slices.Insert(r.box.unexpected, 0, rest)
		}
	}
	r.st = st
	r.finish(err)
	m.releaseSendBuffer()
}

// releaseSendBuffer notes that the send buffer of a message is no longer needed.
func (m *msg) releaseSendBuffer() {
	if m.buffered && !m.sender.w.defects.BufferLeaks {
		m.sender.used -= len(m.data) + overhead
	}
	if m.of != nil {
		m.of.finish(m.of.err)
	}
}

// overhead is the buffer space of a buffered message besides its data.
const overhead = 64
