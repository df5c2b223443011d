package iwarp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// startupSession makes connections to a device one after the other.
type startupSession struct {
	*host
	mpa    model.MPA
	active bool
	conns  []*conn
	// failed is the last connection of an active device if it was not made. The next one uses its
	// queue pair.
	failed *conn
}

// startupStep is an attempt to connect.
type startupStep struct {
	// frame is the peer's start-up frame. A frame to an active device is completed when its Request
	// is known: depths and RTRs follow it.
	frame startupFrame
	// fault describes what is wrong with it.
	fault string
	// piece is the length of TCP segments, and cut the number of octets that are not sent at all.
	piece, cut int
	param      verbs.ConnParam
	rejects    bool
}

// String describes the frame, and how it is sent.
func (s startupStep) String() string {
	text := s.frame.String()
	if s.fault != "" {
		text += ", changed: " + s.fault
	}
	if s.piece > 0 {
		text += fmt.Sprintf(", in TCP segments of %d octets", s.piece)
	}
	return fmt.Sprintf("%s; application: IRD %d, ORD %d, %d octets of private data, rejects %t", text,
		s.param.ResponderResources, s.param.InitiatorDepth, len(s.param.PrivateData), s.rejects)
}

// onStartups makes the body of a case with random connection attempts, by the device if active. mpa
// is the model of the device, with the markers and CRCs that its setup makes it request.
func onStartups(active bool, mpa model.MPA) func(*conformance.Bench) error {
	const dialogues, attempts = 25, 4
	return rig.Dialogue[startupStep]{Dialogues: dialogues, Steps: attempts, Open: func(r *rig.Rig) rig.DialogueSession[startupStep] {
		sessionRig := *r
		sessionRig.CQ = r.CreateCQ(verbs.CQInit{Depth: 64})
		return &startupSession{host: &host{Rig: &sessionRig}, mpa: mpa, active: active}
	}}.Body()
}

// Draw returns an attempt with random flags, revision, private data, depths and RTRs; one in five
// is malformed.
func (s *startupSession) Draw(random *rand.Rand) startupStep {
	step := startupStep{rejects: random.IntN(5) == 0, piece: rig.Pick(random, 0, 0, 1, 7, 16, 20, 21, 24)}
	step.param = verbs.ConnParam{
		ResponderResources: uint8(random.IntN(20)), InitiatorDepth: uint8(random.IntN(20)),
		PrivateData: rig.Pattern(rig.Pick(random, 0, 0, 1, 3, 4, 60, 251, 252, 253, 300, 508), byte(random.Uint32())),
	}
	f := iwarp.Request().Markers(random.IntN(2) == 0).CRC(random.IntN(2) == 0)
	if s.active {
		f = f.WithKey(iwarp.KeyReply).Reject(step.rejects)
	} else {
		f = f.Reject(random.IntN(4) == 0) // ignored in a Request
	}
	f = f.ReservedBits(uint8(rig.Pick(random, 0, 0, random.IntN(16)))).Private(rig.Pattern(rig.Pick(random, 0, 0, 1, 3, 4, 60, 200, 251), byte(random.Uint32())))
	if s.active || random.IntN(4) > 0 {
		f = drawEnhanced(random, f)
	} else {
		f = f.Revision(rig.Pick[uint8](random, 1, 2))
	}
	step.frame = f
	if random.IntN(5) == 0 {
		step.frame, step.fault = drawStartupFault(random, f, s.active)
		if step.fault == cutFault {
			const headerLen = 20 // of a start-up frame
			step.cut = 1 + random.IntN(headerLen-1)
		}
	}
	return step
}

// drawEnhanced adds enhanced data with random flags and depths.
func drawEnhanced(random *rand.Rand, f startupFrame) startupFrame {
	depth := func() uint16 {
		return rig.Pick(random, 1, 2, 3, 8, 16, iwarp.NoNegotiation, uint16(1+random.IntN(100)))
	}
	flags := iwarp.EnhancedFlags(random.IntN(16))
	return f.Depths(depth(), depth()).Flags(flags)
}

// drawStartupFault makes a frame malformed, and describes how. A Reply never has a long PD_Length, which can crash real
// devices; another case checks that.
func drawStartupFault(random *rand.Rand, f startupFrame, reply bool) (startupFrame, string) {
	key := []byte(*f.Key)
	key[random.IntN(len(key))] ^= byte(1 << random.IntN(8))
	rev, length := rig.Pick[uint8](random, 3, 4, 0x81, 255), uint16(rig.Pick(random, 513, 600, 0x8000, 0xffff))
	switch kind := random.IntN(4); {
	case kind == 0:
		return f.WithKey(string(key)), fmt.Sprintf("key %q", key)
	case kind == 1:
		return f.Revision(rev), fmt.Sprintf("revision %d", rev)
	case kind == 2 && !reply:
		return f.PrivateLength(length), fmt.Sprintf("PD_Length %d", length)
	}
	return f, cutFault
}

// cutFault describes a frame that Draw must cut short.
const cutFault = "cut"

// Play makes a connection attempt, and compares the device with the model.
func (s *startupSession) Play(step startupStep) {
	s.mpa.Param, s.mpa.Rejects = step.param, step.rejects && !s.active
	if s.active {
		s.playActive(step)
	} else {
		s.playPassive(step)
	}
}

// Close resets the connections, and frees their queue pairs, memory and listeners.
func (s *startupSession) Close() {
	if s.syncConn != nil {
		s.conns = append(s.conns, s.syncConn)
	}
	for i, c := range s.conns {
		c.reset()
		if i > 0 && c.qp == s.conns[i-1].qp {
			continue // an attempt that reused the queue pair of the failed one before it
		}
		s.Must("a queue pair that can be closed", c.qp.Close())
		s.Must("a region that can be deregistered", c.targetMem.MR.Close())
		s.Must("a region that can be deregistered", c.localMem.MR.Close())
	}
	for _, hs := range s.accepts {
		s.Must("a listener that can be closed", hs.listener.Close())
	}
	s.Must("a completion queue that can be closed", s.CQ.Close())
}

// sendStartup sends frame f without the last step.cut octets, and FIN if some are missing. It sends
// TCP segments of step.piece octets, or a single one if that would make more than eight.
func (s *startupSession) sendStartup(c *conn, step startupStep, f startupFrame) {
	b := f.Append(nil)
	b = b[:len(b)-step.cut]
	for n := step.piece; n > 0 && len(b) > n && len(b) < 8*n; b = b[n:] {
		c.write(b[:n])
	}
	c.write(b)
	if step.cut > 0 {
		c.closeWrite()
	}
}

// allFields returns a frame with the values of all its fields.
func allFields(f startupFrame) startupFrame {
	full, _, _ := iwarp.ParseStartupFrame(f.Append(nil))
	return full
}

// playPassive connects to the device, which listens, and sends a Request. The case fails unless the
// device accepts, rejects or refuses it as the model does, and an accepted connection works.
func (s *startupSession) playPassive(step startupStep) {
	request := allFields(step.frame)
	want, verdict := s.mpa.Reply(request)
	if verdict == model.MPAMalformed || step.cut > 0 {
		l := s.listen()
		c := &conn{stream: stream{host: s.host, tcp: s.dial(l)}}
		s.sendStartup(c, step, step.frame)
		c.expectEnd()
		s.expectNoConnRequest(l)
		c.reset()
		s.Must("a listener that can be closed", l.Close())
		return
	}
	options := setup{connParams: &step.param}
	if e := request.Enhanced; e != nil && e.Flags() == flagA|flagB {
		options.receives = 1 // for a Send as RTR
	}
	if step.rejects {
		options.respond = func(r verbs.ConnRequest, _ verbs.QP) (verbs.Conn, error) {
			return nil, r.Reject(step.param.PrivateData)
		}
	}
	hs := s.startPassive(options)
	s.conns = append(s.conns, hs.conn)
	hs.peerFrame = step.frame
	s.sendStartup(hs.conn, step, step.frame)
	reply := hs.expectFrame(want)
	if err := s.mpa.CheckReply(request, reply); err != nil {
		s.Fail(err.Error(), "%v", reply)
	}
	if verdict == model.MPARejected {
		s.Must("a connection request that can be rejected", hs.awaitResult())
	} else {
		c := hs.establish()
		c.expectTraffic()
		if e := reply.Enhanced; e != nil {
			c.expectDepths(*e.ORD, *e.IRD)
		}
	}
	s.checkPrivateData(hs.requestParam.PrivateData, request.PrivateData)
	s.Completions()
}

// checkPrivateData fails the case unless the application has got the peer's private data.
func (s *startupSession) checkPrivateData(got, want []byte) {
	s.Check(bytes.Equal(got, want), fmt.Sprintf("%d octets of private data: % x", len(want), head(want)), "%d: % x", len(got), head(got))
}

// playActive has the device connect, and answers its Request. The case fails unless the device
// reacts to the Reply as the model does. A failed attempt's queue pair is used again by the next.
func (s *startupSession) playActive(step startupStep) {
	hs := s.startActive(setup{connParams: &step.param, reuse: s.failed})
	s.conns, s.failed = append(s.conns, hs.conn), hs.conn
	request := hs.expectFrame(s.mpa.Request())
	reply := completeReply(step, request)
	hs.peerFrame = reply
	s.sendStartup(hs.conn, step, reply)
	verdict := s.mpa.ReplyVerdict(allFields(reply))
	switch {
	case verdict == model.MPAMalformed || step.cut > 0:
		hs.enterFullOperation().expectAbort()
		hs.expectConnError()
	case verdict == model.MPARejected:
		var rejected *verbs.RejectError
		err := hs.expectConnError()
		s.Check(errors.As(err, &rejected), "a connect that is rejected", "%v", err)
		s.checkPrivateData(rejected.PrivateData, reply.PrivateData)
	default:
		s.failed = nil
		c := hs.enterFullOperation()
		c.expectAgreedRTR(*reply.Enhanced)
		hs.expectConnected()
		s.checkPrivateData(c.deviceConn.Param().PrivateData, reply.PrivateData)
		c.expectTraffic()
		c.expectDepths(min(*request.Enhanced.ORD, *reply.Enhanced.IRD), *reply.Enhanced.ORD)
	}
	s.Completions()
}

// expectDepths fails the case unless the device has ord reads outstanding and no more, and answers
// ird reads that arrive at once. It does nothing for large values, and those not negotiated.
func (c *conn) expectDepths(ord, ird uint16) {
	const maxDepth, firstID = 6, 80
	if 0 < ord && ord <= maxDepth {
		n := int(ord) + 1
		c.postBatch(n, func(i int) verbs.SendWR { return c.readWR(firstID+uint64(i), 8*i, 8) })
		requests := c.nextFPDUs(n - 1)
		c.expectSilence(silencePeriod)
		for i := range n {
			c.checkFPDU(iwarp.Op(iwarp.OpReadRequest), requests[i])
			c.send(iwarp.ReadResponseTo(requests[i].Segment, data(8)))
			if i == 0 {
				requests = append(requests, c.nextFPDUs(1)...)
			}
			c.ExpectCompletion(firstID+uint64(i), verbs.WCSuccess)
		}
	}
	if ird <= maxDepth {
		c.sendBatch(int(ird), func(i int) iwarp.Segment { return c.peerRead(8*i, 8) })
		for i := range int(ird) {
			c.expectReadResponse(c.targetMem.Buf[8*i:][:8])
		}
	}
}

// expectAgreedRTR expects a zero-length RTR of a kind that the Reply has, and answers a Read. It
// does nothing if the peer has not agreed to the peer-to-peer model.
func (c *conn) expectAgreedRTR(reply iwarp.Enhanced) {
	if !*reply.PeerToPeer {
		return
	}
	g := c.expect(iwarp.Any().Last(true).WithPayload(nil))
	kind, ok := map[iwarp.Opcode]iwarp.EnhancedFlags{iwarp.OpSend: flagB, iwarp.OpWrite: flagC, iwarp.OpReadRequest: flagD}[g.Op()]
	c.Check(ok && reply.Flags()&kind != 0, fmt.Sprintf("an RTR of the kinds %v", reply.Flags()&rtrFlags), "%v", g)
	if g.Op() == iwarp.OpReadRequest {
		c.send(iwarp.ReadResponseTo(g.Segment, nil))
	}
}

// completeReply returns the Reply of a step, with an ORD of at most the IRD of the Request, and only
// kinds of RTR that the Request offers.
func completeReply(step startupStep, request startupFrame) startupFrame {
	requested := request.Enhanced
	return step.frame.EditEnhanced(func(e *iwarp.Enhanced) {
		if *e.ORD != iwarp.NoNegotiation {
			e.ORD = new(min(*e.ORD, *requested.IRD))
		}
		offered := requested.Flags()
		chosen := e.Flags() & offered & rtrFlags
		if chosen == 0 {
			chosen = offered & rtrFlags
		}
		e.PeerToPeer = requested.PeerToPeer
		e.SendRTR, e.WriteRTR, e.ReadRTR = new(chosen&flagB != 0), new(chosen&flagC != 0), new(chosen&flagD != 0)
	})
}

const startupExpects = "frames with the fields that a model of the RFCs permits; a working connection, a rejection with its private data, or the end of the stream"

var startupDialogueCases = []conformance.Case{{
	ID: "dialogue/mpa-startup/responder", Cite: cite("rfc5044/7.1.2/3", "rfc5044/7.1.1/9", "rfc5044/7.1.1/12", "rfc6581/10/1", "rfc6581/9.2/9"),
	Title: "A listening device answers Requests as specified",
	Sends: "random Requests: flags, revision, private data, depths and RTRs; some malformed", Expects: startupExpects,
	Defects: []string{"EchoesFlags", "ForcesEnhanced", "RTRBitsLeft"}, Run: onStartups(false, model.MPA{CRC: true}),
}, {
	ID: "dialogue/mpa-startup/responder-with-markers", Cite: cite("rfc5044/7.1.1/6", "rfc5044/7.1.2/10", "rfc5044/7.1.1/7"), Setup: setupMarkers,
	Title: "A listening device that requests markers answers Requests as specified",
	Sends: "random Requests: flags, revision, private data, depths and RTRs; some malformed", Expects: startupExpects,
	Defects: []string{"MarkersStartLate"}, Run: onStartups(false, model.MPA{CRC: true, Markers: true}),
}, {
	ID: "dialogue/mpa-startup/initiator", Cite: cite("rfc5044/7.1.2/7", "rfc5044/7.1.2/8", "rfc6581/9.2/6", "rfc6581/9.1/10", "verbs/cm/18"),
	Title: "A connecting device handles Replies as specified",
	Sends: "random Replies: flags, private data, depths and RTRs; some malformed; a queue pair whose connect failed connects again", Expects: startupExpects,
	Defects: []string{"RTRUnasked", "RejectIsAccept", "RejectedKeepsQP", "FailedKeepsQP"}, Run: onStartups(true, model.MPA{CRC: true}),
}}
