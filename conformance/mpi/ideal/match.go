package ideal

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// msg is a message on its way, or unexpected where it was sent to.
type msg struct {
	source, tag int
	data        []byte // the program's own until the send is complete
	sync        bool
	buffered    bool
	ready       bool
	of          *request // the send
	sender      *proc
	dropped     bool
}

// wire carries the messages of one rank to one other in one communicator, in order.
type wire struct {
	src, dst int // of the world
	to       *box
	queue    []*msg
}

// box is where the messages of one communicator arrive at one rank.
type box struct {
	posted     []*request
	unexpected []*msg
	wires      map[int]*wire // by source
	count      int
}

// launch puts a message on its way.
func (w *world) launch(src, dst int, to *box, m *msg) {
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

// deliver has the next message of a wire arrive, if it can.
func (w *world) deliver(x *wire) bool {
	if !w.attends(x.dst) {
		return false
	}
	k := w.next(x)
	m := x.queue[k]
	if w.fl.LargeNeedsWait && m.of != nil && len(m.data) > 4096 && !m.of.awaited {
		return false
	}
	x.queue = slices.Delete(x.queue, k, k+1)
	if len(x.queue) == 0 {
		w.wires = slices.DeleteFunc(w.wires, func(y *wire) bool { return y == x })
	}
	fl := w.fl
	switch {
	case m.dropped:
		return true
	case fl.EmptyDropped && len(m.data) == 0, fl.SelfLost && x.src == x.dst,
		fl.ReadyLost && m.ready, fl.FloodLost && len(x.to.unexpected) >= 500:
		m.left()
		return true
	}
	if fl.SyncOnArrival && m.sync {
		m.of.finish(nil)
	}
	x.to.count++
	if k := slices.IndexFunc(x.to.posted, func(r *request) bool { return w.matches(r, m) }); k >= 0 {
		r := x.to.posted[w.preferred(x.to.posted, m, k)]
		x.to.posted = slices.DeleteFunc(x.to.posted, func(o *request) bool { return o == r })
		if fl.ProbeSeesMatched {
			x.to.unexpected = append(x.to.unexpected, &msg{source: m.source, tag: m.tag, data: m.data, of: &request{p: m.sender}, sender: m.sender})
		}
		w.fill(r, m)
		return true
	}
	x.to.unexpected = append(x.to.unexpected, m)
	return true
}

// next is which message of a wire arrives next: the first.
func (w *world) next(x *wire) int {
	fl, n := w.fl, len(x.queue)
	if n < 2 {
		return 0
	}
	a, b := x.queue[0], x.queue[1]
	rare := x.to.count%256 == 255
	switch {
	case fl.Overtakes && w.rng.IntN(2) == 0,
		fl.OvertakesRarely && rare,
		fl.SmallOvertakes && len(a.data) > 4096 && len(b.data) <= 4096,
		fl.LargeOvertakes && len(a.data) <= 4096 && len(b.data) > 4096,
		fl.SyncOvertaken && a.sync && !b.sync,
		fl.EmptyOvertakes && len(b.data) == 0 && len(a.data) > 0:
		return 1
	}
	return 0
}

// preferred is which of the receives that match gets a message: the one that was
// posted first, which is k.
func (w *world) preferred(posted []*request, m *msg, k int) int {
	for i, r := range posted {
		if i <= k || !w.matches(r, m) {
			continue
		}
		wild := func(r *request) bool { return r.source == mpi.AnySource || r.tag == mpi.AnyTag }
		switch {
		case w.fl.PostedLastFirst,
			w.fl.ExactFirst && wild(posted[k]) && !wild(r),
			w.fl.WildFirst && !wild(posted[k]) && wild(r):
			k = i
		}
	}
	return k
}

func (w *world) matches(r *request, m *msg) bool {
	fl := w.fl
	return (r.source == mpi.AnySource || r.source == m.source || fl.SourceIgnored) &&
		(r.tag == mpi.AnyTag || r.tag == m.tag || fl.TagIgnored || fl.TagCut && r.tag&0x7fff == m.tag&0x7fff)
}

// find is which unexpected message a receive or probe gets: the one that came first.
func (w *world) find(b *box, source, tag int) int {
	r := &request{source: source, tag: tag}
	k := slices.IndexFunc(b.unexpected, func(m *msg) bool { return w.matches(r, m) })
	for i, m := range b.unexpected {
		if k < 0 || i <= k || !w.matches(r, m) {
			continue
		}
		if w.fl.UnexpectedLastFirst || w.fl.UnexpectedByTag && m.tag < b.unexpected[k].tag {
			k = i
		}
	}
	return k
}

// post begins a receive.
func (w *world) post(b *box, r *request) {
	if k := w.find(b, r.source, r.tag); k >= 0 {
		m := b.unexpected[k]
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
		w.fill(r, m)
		return
	}
	b.posted = append(b.posted, r)
}

// fill gives a message to a receive: both are complete.
func (w *world) fill(r *request, m *msg) {
	fl := w.fl
	d := m.data
	if fl.ReadyEmpty && m.ready {
		d = nil
	}
	n := copy(r.buf, d)
	switch {
	case fl.LastByteLost && n > 1:
		r.buf[n-1] = 0
	case fl.LargeDamaged && n > 65536:
		r.buf[n/2] ^= 1
	case fl.RaggedLost && n%8 != 0:
		clear(r.buf[n&^7 : n])
	case fl.BufferWiped:
		clear(r.buf[n:])
	case fl.MiddleDamaged && n > 8:
		r.buf[n/2] ^= 1
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: n}
	if fl.WildSourceUntold && r.source == mpi.AnySource {
		st.Source = mpi.AnySource
	}
	if fl.WildTagUntold && r.tag == mpi.AnyTag {
		st.Tag = mpi.AnyTag
	}
	if fl.CountIsRoom {
		st.Count = len(r.buf)
	}
	if fl.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	var err error
	if len(d) > len(r.buf) {
		if !fl.TruncatesSilently {
			err = mpi.ErrTruncate
		}
		if fl.TruncateCountsAll {
			st.Count = len(d)
		}
		if fl.TruncateWedges {
			r.p.shut = mpi.ErrTruncate
		}
		if fl.TruncateFailsSender && m.of != nil {
			m.of.err = mpi.ErrTruncate
		}
		if fl.TruncateKeepsRest {
			rest := &msg{source: m.source, tag: m.tag, data: slices.Clone(d[len(r.buf):]), of: &request{p: m.sender}, sender: m.sender}
			r.box.unexpected = slices.Insert(r.box.unexpected, 0, rest)
		}
	}
	r.st = st
	r.finish(err)
	m.left()
}

// left says that a message needs its sender no more.
func (m *msg) left() {
	if m.buffered && !m.sender.w.fl.BufferLeaks {
		m.sender.used -= len(m.data) + overhead
	}
	if m.of != nil {
		m.of.finish(m.of.err)
	}
}

// overhead is what a buffered message takes besides its data.
const overhead = 64
