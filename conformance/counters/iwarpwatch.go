package counters

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// iwarpHost is an application on an iWARP device whose streams are counted.
type iwarpHost struct {
	*rig.Rig
	about      []quantity
	before     values
	firstEvent int // index of the first recorded event that counts
	streams    []*iwarpStream
}

// onIWARP makes the body of a case about these quantities. body returns the counts that
// the record does not show.
func onIWARP(about []quantity, body func(*iwarpHost) counts) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		iwarpNames.requireAny(r, about...)
		events, _ := r.Record.Events()
		h := &iwarpHost{Rig: r, about: about, before: readCounters(r), firstEvent: len(events)}
		h.checkCounters(body(h))
	})
}

// iwarpStream is a connection with a scripted peer.
type iwarpStream struct {
	*iwarpHost
	qp                  verbs.QP
	targetMem, localMem *rig.Memory
	tcp                 conformance.Stream
	out                 iwarp.Framer
	in                  iwarp.Deframer
	sends               uint32 // messages of the peer on queue 0
	requests            uint32 // messages of the peer on queue 1
	answers             uint32 // responses to them
	ended               bool
}

// peerSink is the address of the peer's memory, which does not exist.
var peerSink = iwarp.At(0x0bad5eed, 0x7000)

// depth is the number of outstanding reads of both sides.
const depth = 8

// connect makes a connection: the peer dials, and sends first.
func (h *iwarpHost) connect(receives int) *iwarpStream {
	s := &iwarpStream{iwarpHost: h}
	access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if h.Caps.Has(verbs.CapAtomics) {
		access |= verbs.AccessRemoteAtomic
	}
	s.targetMem, s.localMem = h.Memory(4096, access|verbs.AccessLocalWrite), h.Memory(4096, verbs.AccessLocalWrite)
	var err error
	s.qp, err = h.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: h.PD, SendCQ: h.CQ, RecvCQ: h.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	h.Must("a queue pair", err)
	h.Must("a queue pair in INIT", s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: access},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	for i := range receives {
		h.PostRecv(s.qp, uint64(i+1), s.localMem.SGE(64*i, 64))
	}
	h.dial(s, func(r verbs.ConnRequest) error {
		_, err := r.Accept(s.qp, verbs.ConnParam{ResponderResources: depth, InitiatorDepth: depth}, h.ResponseTimeout())
		return err
	})
	s.sendFrames(iwarp.Write(peerSink.STag, 0, nil))
	return s
}

// dial connects a TCP stream, and has an application on the device answer the peer's MPA
// request.
func (h *iwarpHost) dial(s *iwarpStream, answer func(verbs.ConnRequest) error) {
	cm, err := h.Device.CM()
	h.Must("a connection manager", err)
	l, err := cm.Listen(netip.AddrPortFrom(h.Local[0], 0), verbs.PortSpaceTCP, 1)
	h.Must("a listener", err)
	application := h.Go("application", func() error {
		r, err := l.GetRequest(h.ResponseTimeout())
		if err != nil {
			return err
		}
		return answer(r)
	})
	if s.tcp, err = h.Streams.Dial(l.Addr(), h.ResponseTimeout()); err != nil {
		rig.Abort(fmt.Errorf("dial: %w", err))
	}
	request := iwarp.Request().Depths(depth, depth)
	s.write(request.Append(nil))
	var received []byte
	reply, rest, ok := iwarp.ParseStartupFrame(received)
	for ; !ok; reply, rest, ok = iwarp.ParseStartupFrame(received) {
		b, err := s.tcp.Read(h.ResponseTimeout())
		h.Must("a Reply", err)
		received = append(received, b...)
	}
	crc := iwarp.Val(reply.C) || iwarp.Val(request.Strict().C)
	s.out, s.in = iwarp.Framer{Markers: iwarp.Val(reply.M), CRC: crc}, iwarp.Deframer{CRC: crc}
	s.in.Feed(rest)
	h.Must("an answer of the application", application.Wait(h.ResponseTimeout()))
	h.Must("a listener that can be closed", l.Close())
	h.streams = append(h.streams, s)
}

func (s *iwarpStream) write(b []byte) {
	if err := s.tcp.Write(b); err != nil {
		s.Note("write: %v", err) // the case reads what the device sent before
	}
}

// sendFrames sends frames.
func (s *iwarpStream) sendFrames(frames ...iwarp.Frame) {
	for _, f := range frames {
		s.write(s.out.Append(nil, f))
	}
}

// next returns the next FPDU of the device; false if the stream ends.
func (s *iwarpStream) next() (iwarp.ReceivedFPDU, bool) {
	for {
		if g, ok := s.in.Next(); ok {
			if op := g.Segment.Op(); op == iwarp.OpReadResponse || op == iwarp.OpAtomicResponse {
				s.answers++
			}
			return g, true
		}
		b, err := s.tcp.Read(s.ResponseTimeout())
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, conformance.ErrReset):
			s.ended = true
			return iwarp.ReceivedFPDU{}, false
		case err != nil:
			s.Fail("an FPDU", "%v", err)
		}
		s.in.Feed(b)
	}
}

// send returns the peer's next Send.
func (s *iwarpStream) send(n int) iwarp.Segment {
	s.sends++
	return iwarp.Send(s.sends, rig.Pattern(n, 0x5a))
}

// at returns the address of an offset in targetMem.
func (s *iwarpStream) at(off int) iwarp.Addr {
	return iwarp.At(uint32(s.targetMem.RKey()), s.targetMem.Addr()+uint64(off))
}

// read returns the peer's next Read of n octets.
func (s *iwarpStream) read(n int) iwarp.Segment {
	s.requests++
	return iwarp.ReadRequest(s.requests, peerSink, uint32(n), s.at(0))
}

// sync waits until the device has processed all earlier frames, by a Read.
func (s *iwarpStream) sync() {
	for s.sendFrames(s.read(8)); s.answers < s.requests; {
		_, ok := s.next()
		s.Check(ok, "a stream that continues", "its end")
	}
}

// readToEnd reads until the stream ends.
func (s *iwarpStream) readToEnd() {
	for {
		if _, more := s.next(); !more {
			return
		}
	}
}

// checkCounters compares the counters with the recorded streams and the extra counts.
func (h *iwarpHost) checkCounters(extra counts) {
	for _, s := range h.streams {
		if !s.ended {
			s.sync()
		}
	}
	events, beyond := h.Record.Events()
	if beyond > 0 {
		rig.Abort(fmt.Errorf("the record lacks %d events", beyond))
	}
	f := make(counts)
	talks := make(map[int]*iwarp.ConnDeframer)
	for i := range events[h.firstEvent:] {
		e := &events[h.firstEvent+i]
		if e.Stream == 0 || e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
			continue // the packets of a raw TCP repeat the stream
		}
		if talks[e.Stream] == nil {
			talks[e.Stream] = new(iwarp.ConnDeframer)
		}
		side := 0 // the peer's
		if e.Kind == conformance.EventReceived {
			side = 1
		}
		for _, heard := range talks[e.Stream].Feed(side, e.Data) {
			f.addMessage(&heard)
		}
	}
	for q, n := range extra {
		f[q] = f[q].plus(n)
	}
	judged := func(q quantity) bool { return slices.Contains(h.about, q) || errorQuantities[q] }
	iwarpNames.expectIncreases(h.Rig, judged, h.before, readCounters(h.Rig), f, nil)
}

func (f counts) add(q quantity) { f[q] = f[q].plus(exactly(1)) }

// addMessage counts a recorded frame. A message counts with its last segment.
func (f counts) addMessage(h *iwarp.ParsedFrame) {
	device := h.Side == 1
	which := func(sent, rcvd quantity) quantity {
		if device {
			return sent
		}
		return rcvd
	}
	if h.Startup != nil {
		if !device {
			f.add(requestsRcvd)
		}
		return
	}
	if h.FPDU.MPA.CRCStatus != nil && *h.FPDU.MPA.CRCStatus == iwarp.CRCWrong {
		return // not counted
	}
	f.add(which(fpdusSent, fpdusRcvd))
	f.add(which(segmentsSent, segmentsRcvd))
	s := h.FPDU.Segment
	if device || !iwarp.Val(s.DDP.Last) {
		if device && s.Op() == iwarp.OpTerminate {
			f.add(terminatesSent)
		}
		return
	}
	switch s.Op() {
	case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate:
		f.add(sendsRcvd)
	case iwarp.OpWrite:
		f.add(writesRcvd)
	case iwarp.OpReadRequest:
		f.add(readsRcvd)
	case iwarp.OpAtomicRequest:
		f.add(atomicsRcvd)
	case iwarp.OpReadResponse, iwarp.OpAtomicResponse:
		f.add(responsesRcvd)
	case iwarp.OpTerminate:
		f.add(terminatesRcvd)
	}
}
