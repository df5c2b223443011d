package iwarp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// startupFrame is an MPA Request or Reply.
type startupFrame = iwarp.StartupFrame

// handshake is an MPA start-up in steps, while the application connects or accepts in a goroutine.
type handshake struct {
	*conn
	setup setup
	// requestParam are the parameters of the connection request, once the application has it.
	requestParam verbs.ConnParam

	listener     verbs.Listener       // of a device that listens
	peerListener conformance.Listener // of a peer that does
	result       verbs.Conn
}

// onRequest makes the body of a case from a function that continues the handshake with a listening
// device after the peer has sent the Request f.
func onRequest(s setup, f startupFrame, body func(*handshake)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.sendRequest(s, f)) })
}

// onActive makes the body of a case from a function that does the handshake with an active device.
func onActive(s setup, body func(*handshake)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.startActive(s)) })
}

// startHandshake starts a handshake in which the device has the role that s.active selects.
func (h *host) startHandshake(s setup) *handshake {
	if s.active {
		return h.startActive(s)
	}
	return h.startPassive(s)
}

// startPassive makes the application listen. A task of the application accepts the connection
// request, or passes it to s.respond if set. The peer opens a TCP connection to the listener.
func (h *host) startPassive(s setup) *handshake {
	hs := &handshake{conn: h.newConn(&s), setup: s, listener: h.listen()}
	h.accepts = append(h.accepts, hs)
	hs.task = h.Go("accept", func() error {
		r, err := hs.listener.GetRequest(appTimeout)
		if err != nil {
			return err
		}
		hs.requestParam = r.Param()
		if s.respond != nil {
			hs.result, err = s.respond(r, hs.qp)
		} else {
			hs.result, err = r.Accept(hs.qp, packet.Get(s.connParams, defaultParam), appTimeout)
		}
		return err
	})
	hs.tcp = h.dial(hs.listener)
	return hs
}

// sendRequest makes the application listen (startPassive), and sends the peer's Request f.
func (h *host) sendRequest(s setup, f startupFrame) *handshake {
	hs := h.startPassive(s)
	hs.sendFrame(f)
	return hs
}

// startActive makes the device's application connect to the peer, which accepts one TCP connection.
func (h *host) startActive(s setup) *handshake {
	hs := h.startActiveListening(s)
	abortOn("close the peer's listener", hs.peerListener.Close())
	return hs
}

// startActiveListening makes the device's application connect to the peer, which accepts one TCP
// connection and continues to listen, for resetAndAwaitRetry.
func (h *host) startActiveListening(s setup) *handshake {
	s.active = true
	hs := &handshake{conn: h.newConn(&s), setup: s}
	var err error
	hs.peerListener, err = h.Streams.Listen(0)
	abortOn("listen", err)
	cm := h.CM()
	hs.task = h.Go("connect", func() error {
		var err error
		hs.result, err = cm.Connect(hs.qp, hs.peerListener.Addr(), packet.Get(s.connParams, defaultParam), cmp.Or(s.connectTimeout, appTimeout))
		return err
	})
	hs.tcp, err = hs.peerListener.Accept(h.ResponseTimeout())
	h.checkStream("a device that connects", err)
	return hs
}

// resetAndAwaitRetry resets the stream, and reports whether the device connects again.
func (hs *handshake) resetAndAwaitRetry() bool {
	hs.reset()
	return hs.awaitRetry()
}

// awaitRetry reports whether the device connects again after the peer has ended the stream.
func (hs *handshake) awaitRetry() bool {
	tcp, err := hs.peerListener.Accept(hs.ResponseTimeout())
	if errors.Is(err, verbs.ErrTimeout) {
		return false
	}
	abortOn("accept", err)
	hs.tcp, hs.startupOctets, hs.endErr, hs.deframer = tcp, nil, nil, iwarp.Deframer{} // a new stream
	return true
}

// sendFrame sends the peer's start-up frame.
func (hs *handshake) sendFrame(f startupFrame) {
	hs.peerFrame = f
	hs.write(f.Append(nil))
}

// exchangeFrames sends the peer's start-up frame, changed by setup.frame, and receives the device's
// frame. The initiator sends first. The case fails if the device rejects the peer's Request.
func (hs *handshake) exchangeFrames() {
	if hs.setup.active {
		hs.recvFrame()
		hs.sendReply(hs.setup.frame)
		return
	}
	f := enhancedRequest()
	if hs.setup.frame != nil {
		f = hs.setup.frame(f)
	}
	hs.sendFrame(f)
	hs.expectFrame(iwarp.Reply().Reject(false))
}

// recvFrame returns the device's start-up frame, or fails the case.
func (hs *handshake) recvFrame() startupFrame {
	until := hs.Now() + hs.ResponseTimeout()
	for {
		f, rest, ok := iwarp.ParseStartupFrame(hs.startupOctets)
		if ok {
			hs.deviceFrame, hs.startupOctets = f, rest
			return f
		}
		b, err := hs.tcp.Read(max(0, until-hs.Now()))
		if err != nil {
			hs.Fail("a start-up frame", "%s after %d octets", describeEnd(err), len(hs.startupOctets))
		}
		hs.startupOctets = append(hs.startupOctets, b...)
	}
}

// expectFrame fails the case unless the device's start-up frame matches want.
func (hs *handshake) expectFrame(want startupFrame) startupFrame {
	got := hs.recvFrame()
	if d := want.Diff(got); d != nil {
		hs.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
	return got
}

// enterFullOperation configures the framing of FPDUs with the markers and CRCs that the start-up
// frames negotiated. It returns the connection.
func (hs *handshake) enterFullOperation() *conn {
	c := hs.conn
	crc := iwarp.Val(hs.deviceFrame.C) || packet.Get(hs.peerFrame.C, true) // C is set by default
	c.framer = iwarp.Framer{Markers: iwarp.Val(hs.deviceFrame.M), CRC: crc}
	c.deframer = iwarp.Deframer{Markers: iwarp.Val(hs.peerFrame.M)}
	c.deframer.Feed(c.startupOctets)
	c.startupOctets = nil
	return c
}

// expectConnected fails the case unless the application's connect or accept succeeds.
func (hs *handshake) expectConnected() *conn {
	hs.Must("a connection", hs.awaitResult())
	hs.deviceConn = hs.result
	return hs.conn
}

// establish enters full operation, sends or receives the first message of the initiator, and
// fails the case unless the application is connected.
func (hs *handshake) establish() *conn {
	c := hs.enterFullOperation()
	if hs.setup.active {
		c.recvRTR()
	} else {
		c.sendRTR()
	}
	return hs.expectConnected()
}

// establishAfter expects a start-up frame that matches want, and establishes the connection.
func (hs *handshake) establishAfter(want startupFrame) *conn {
	hs.expectFrame(want)
	return hs.establish()
}

// establishWithReply sends a Reply, changed by edit unless that is nil, and makes the connection.
func (hs *handshake) establishWithReply(edit func(startupFrame) startupFrame) *conn {
	hs.sendReply(edit)
	return hs.establish()
}

// awaitResult waits for the application's connect or accept call.
func (hs *handshake) awaitResult() error {
	err := hs.task.Wait(2 * appTimeout) // GetRequest and Accept may take appTimeout each
	hs.Note("application: %s", errorOr(err, "connected"))
	return err
}

// expectConnError returns the error of the application's connect or accept, or fails the case.
func (hs *handshake) expectConnError() error {
	err := hs.awaitResult()
	hs.Check(err != nil, "no connection", "the application has a connection")
	return err
}

// expectEndOfStartup fails the case unless the device ends the stream. It ignores all octets before
// the end, such as a start-up frame.
func (hs *handshake) expectEndOfStartup() {
	for {
		if _, err := hs.tcp.Read(hs.ResponseTimeout()); err != nil {
			hs.Check(!errors.Is(err, verbs.ErrTimeout), "the end of the stream", "%s", describeEnd(err))
			return
		}
	}
}

// describeEnd describes what a read of the stream has found in place of octets.
func describeEnd(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the end of the stream"
	case errors.Is(err, conformance.ErrReset):
		return "a reset"
	case errors.Is(err, verbs.ErrTimeout):
		return "nothing"
	default:
		return err.Error()
	}
}

// silencePeriod is how long a silent device is observed if no timer runs.
const silencePeriod = rig.SilencePeriod

// enhancedRequest returns the peer's default Request: peer-to-peer, with all RTRs and depths of 16.
func enhancedRequest() startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead)
}

// sendReply answers the device's Request in the same revision, with depths that the Request permits
// and the cheapest of the offered RTRs. edit, unless it is nil, changes the Reply.
func (hs *handshake) sendReply(edit func(startupFrame) startupFrame) {
	f := iwarp.Reply().Revision(iwarp.Val(hs.deviceFrame.Rev))
	if e := hs.deviceFrame.Enhanced; e != nil {
		f = f.Depths(iwarp.Val(e.ORD), min(iwarp.Val(e.IRD), defaultOrd))
		if iwarp.Val(e.PeerToPeer) {
			f = f.PeerToPeer(cheapestRTR(*e))
		}
	}
	if edit != nil {
		f = edit(f)
	}
	hs.sendFrame(f)
}

// cheapestRTR returns the offered RTR that needs least from its receiver; 0 if there is none.
func cheapestRTR(e iwarp.Enhanced) iwarp.RTR {
	switch {
	case iwarp.Val(e.WriteRTR):
		return iwarp.RTRWrite
	case iwarp.Val(e.ReadRTR):
		return iwarp.RTRRead
	case iwarp.Val(e.SendRTR):
		return iwarp.RTRSend
	}
	return 0
}

// sendRTR sends the first message of an initiator, the negotiated RTR or a zero-length Write, and
// wakes the device. It then expects the response to a Read, or a receive completion for a Send.
func (c *conn) sendRTR() {
	switch cheapestRTR(iwarp.Val(c.deviceFrame.Enhanced)) {
	case iwarp.RTRRead:
		c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), 0, iwarp.At(peerSTag, 0)))
		c.wakeDevice()
		c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil))
	case iwarp.RTRSend:
		c.send(iwarp.Send(c.nextSendMSN(), nil))
		c.wakeDevice()
		c.ExpectRecv(1, 0)
	default:
		c.send(iwarp.Write(peerSTag, 0, nil))
		c.wakeDevice()
	}
}

// wakeDevice sends zero-length Writes, for at most a second, until the application has accepted: some
// devices process a message right after their Reply only when another one arrives. A separate case
// checks that.
func (c *conn) wakeDevice() {
	const attempts, interval = 50, 20 * time.Millisecond
	c.sendEmptyWrite()
	for range attempts {
		if err := c.task.Wait(interval); !errors.Is(err, verbs.ErrTimeout) {
			break
		}
		c.sendEmptyWrite()
	}
	c.sendEmptyWrite() // wakes the device for messages that arrived before the accept
}

// sendEmptyWrite sends a zero-length Write, which has no effect.
func (c *conn) sendEmptyWrite() { c.send(iwarp.Write(peerSTag, 0, nil)) }

// finishAccepts sends the first message on connections whose application is still in accept. With
// Linux's siw an accept cannot be cancelled before the first message, and the kernel panics if the
// stream ends before it.
func (h *host) finishAccepts() {
	for _, hs := range h.accepts {
		if hs.deviceFrame.Rev == nil || !errors.Is(hs.task.Wait(shortWait), verbs.ErrTimeout) {
			continue // no Reply was sent, or the accept has returned
		}
		if hs.framer.Position == 0 { // nothing was sent in full operation
			hs.enterFullOperation()
		}
		hs.wakeDevice()
	}
}

// recvRTR receives the RTR of a device, of any length, and answers a Read. It does nothing if the
// peer has not agreed to the peer-to-peer model.
func (c *conn) recvRTR() {
	if !iwarp.Val(iwarp.Val(c.peerFrame.Enhanced).PeerToPeer) {
		return
	}
	switch g := c.expect(iwarp.Any()); g.Op() {
	case iwarp.OpReadRequest:
		c.send(iwarp.ReadResponseTo(g.Segment, nil))
	case iwarp.OpSend, iwarp.OpWrite:
	default:
		c.Fail("a Read Request, Send or Write as RTR", "%v", g)
	}
}
