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
	dropped     bool // a defect discards the message instead of delivering it
}

// messageLink carries the messages from one rank to another in one communicator, in order.
type messageLink struct {
	src, dst int // of the world
	to       *recvQueues
	queue    []*msg
}

// recvQueues are the unexpected messages and posted receives of a rank in a communicator.
type recvQueues struct {
	posted     []*request
	unexpected []*msg
	links      map[int]*messageLink // by source
	delivered  int
}

// enqueue appends a message to the link from rank src to rank dst of the world, on which it waits
// to be delivered. to are the receive queues of dst for one communicator.
func (w *world) enqueue(src, dst int, to *recvQueues, m *msg) {
	if to.links == nil {
		to.links = make(map[int]*messageLink)
	}
	link := to.links[src]
	if link == nil {
		link = &messageLink{src: src, dst: dst, to: to}
		to.links[src] = link
	}
	if len(link.queue) == 0 {
		w.links = append(w.links, link)
	}
	link.queue = append(link.queue, m)
}

// deliver delivers the next message of a link to a posted receive, or to the unexpected messages.
// It returns false if the destination cannot receive now, or if a defect holds the message back.
func (w *world) deliver(link *messageLink) bool {
	if !w.canReceive(link.dst) {
		return false
	}
	i := w.nextIndex(link)
	m := link.queue[i]
	if w.Defects.LargeNeedsWait && m.send != nil && len(m.data) > largeMessage && !m.send.awaited {
		return false
	}
	link.queue = slices.Delete(link.queue, i, i+1)
	if len(link.queue) == 0 {
		w.links = slices.DeleteFunc(w.links, func(other *messageLink) bool { return other == link })
	}
	switch {
	case m.dropped: // its send does not complete, or is complete already
		return true
	case w.Defects.EmptyDropped && len(m.data) == 0, w.Defects.SelfLost && link.src == link.dst,
		w.Defects.ReadyLost && m.ready, w.Defects.FloodLost && len(link.to.unexpected) >= floodLimit:
		m.completeSend()
		return true
	}
	if w.Defects.SyncOnArrival && m.sync {
		m.send.finish(nil)
	}
	link.to.delivered++
	if k := w.findPosted(link.to, m); k >= 0 {
		r := link.to.posted[k]
		link.to.posted = slices.Delete(link.to.posted, k, k+1)
		if w.Defects.ProbeSeesMatched {
			link.to.unexpected = append(link.to.unexpected, m.copyOf(m.data))
		}
		w.completeRecv(r, m)
		return true
	}
	link.to.unexpected = append(link.to.unexpected, m)
	return true
}

// nextIndex returns the index of the message that arrives next: 0, or 1 if a defect reorders them.
func (w *world) nextIndex(link *messageLink) int {
	if len(link.queue) < 2 {
		return 0
	}
	first, second := link.queue[0], link.queue[1]
	every256th := link.to.delivered%256 == 255
	switch {
	case w.Defects.Overtakes && w.rng.IntN(2) == 0,
		w.Defects.OvertakesRarely && every256th,
		w.Defects.SmallOvertakes && len(first.data) > largeMessage && len(second.data) <= largeMessage,
		w.Defects.LargeOvertakes && len(first.data) <= largeMessage && len(second.data) > largeMessage,
		w.Defects.SyncOvertaken && first.sync && !second.sync,
		w.Defects.EmptyOvertakes && len(second.data) == 0 && len(first.data) > 0:
		return 1
	}
	return 0
}

// findMatch returns the index of the element that matches, or -1. Of several it returns the first,
// as MPI requires, unless isPreferred returns true for a later one (next): a runtime with a defect
// matches out of order.
func findMatch[E any](all []E, matches func(E) bool, isPreferred func(best, next E) bool) int {
	best := -1
	for i, e := range all {
		if matches(e) && (best < 0 || isPreferred(all[best], e)) {
			best = i
		}
	}
	return best
}

// findPosted returns the index of the first posted receive that matches message m, or -1. Defects of
// the world, deliberate ones that cases must notice, make it prefer another matching receive.
func (w *world) findPosted(q *recvQueues, m *msg) int {
	wild := func(r *request) bool { return r.peer == mpi.AnySource || r.tag == mpi.AnyTag }
	return findMatch(q.posted, func(r *request) bool { return w.matches(r, m) }, func(best, next *request) bool {
		return w.Defects.PostedLastFirst || w.Defects.ExactFirst && wild(best) && !wild(next) || w.Defects.WildFirst && !wild(best) && wild(next)
	})
}

// matches reports whether a receive matches a message.
func (w *world) matches(r *request, m *msg) bool {
	return (r.peer == mpi.AnySource || r.peer == m.source || w.Defects.SourceIgnored) &&
		(r.tag == mpi.AnyTag || r.tag == m.tag || w.Defects.TagIgnored || w.Defects.TagCut && r.tag&0x7fff == m.tag&0x7fff)
}

// findUnexpected returns the index of the first unexpected message that a receive or probe of
// source and tag matches, or -1. Defects of the world, deliberate ones that cases must notice, make
// it prefer another matching message.
func (w *world) findUnexpected(q *recvQueues, source, tag int) int {
	r := &request{peer: source, tag: tag}
	return findMatch(q.unexpected, func(m *msg) bool { return w.matches(r, m) }, func(best, next *msg) bool {
		return w.Defects.UnexpectedLastFirst || w.Defects.UnexpectedByTag && next.tag < best.tag
	})
}

// postRecv completes a receive with an unexpected message, or appends it to the posted receives.
func (w *world) postRecv(q *recvQueues, r *request) {
	if k := w.findUnexpected(q, r.peer, r.tag); k >= 0 {
		m := q.unexpected[k]
		q.unexpected = slices.Delete(q.unexpected, k, k+1)
		w.completeRecv(r, m)
		return
	}
	q.posted = append(q.posted, r)
}

// completeRecv copies a message to the buffer of a receive, and completes the receive and the send.
// Defects damage the data, report a wrong status, or treat a message that is too long wrongly.
func (w *world) completeRecv(r *request, m *msg) {
	data := m.data
	if w.Defects.ReadyEmpty && m.ready {
		data = nil
	}
	n := copy(r.buf, data)
	switch {
	case w.Defects.LastByteLost && n > 1:
		r.buf[n-1] = 0
	case w.Defects.LargeDamaged && n > 64<<10:
		r.buf[n/2] ^= 1
	case w.Defects.RaggedLost && n%8 != 0:
		clear(r.buf[n-n%8 : n])
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
	if len(data) > len(r.buf) {
		if !w.Defects.TruncatesSilently && !(w.Defects.TruncatesOneByte && len(data) == len(r.buf)+1) {
			err = mpi.ErrTruncate
		}
		if w.Defects.TruncateCountsAll {
			st.Count = len(data)
		}
		if w.Defects.TruncateWedges {
			r.c.stickyError = mpi.ErrTruncate // all later calls fail with it
		}
		if w.Defects.TruncateFailsSender && m.send != nil {
			m.send.err = mpi.ErrTruncate
		}
		if w.Defects.TruncateKeepsRest {
			rest := m.copyOf(slices.Clone(data[len(r.buf):]))
			r.queues.unexpected = slices.Insert(r.queues.unexpected, 0, rest)
		}
	}
	r.st = st
	r.finish(err)
	m.completeSend()
}

// copyOf returns a message with the same envelope and other data. Nobody waits for its send.
func (m *msg) copyOf(data []byte) *msg {
	return &msg{source: m.source, tag: m.tag, data: data, send: &request{}, sender: m.sender}
}

// completeSend completes the send of a message that was received or lost. A buffered send is
// complete already: completeSend frees its space in the attached buffer.
func (m *msg) completeSend() {
	if m.buffered && !m.sender.Defects.BufferLeaks {
		m.sender.bufferUsed -= len(m.data) + overhead
	}
	if m.send != nil {
		m.send.finish(m.send.err)
	}
}

// overhead is the buffer space of a buffered message besides its data.
const overhead = 64

// largeMessage is the size above which most defects take a message as large.
const largeMessage = 4096

// floodLimit is the number of unexpected messages at which the defect FloodLost loses more.
const floodLimit = 500
