package iwarp

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn is a connected queue pair of the device, with a scripted peer. The peer keeps framing
// state only: it never responds by itself.
type conn struct {
	stream
	qp verbs.QP
	// task is the connect or accept call of the application.
	task conformance.Task
	// deviceConn is the connection of the application.
	deviceConn verbs.Conn
	// targetMem is for requests of the peer; localMem for requests and receives of the device.
	targetMem, localMem *rig.Memory
	// recvLen is the length of its receives, which are one after the other in localMem.
	recvLen int
	// deviceFrame and peerFrame are the start-up frames.
	deviceFrame, peerFrame startupFrame
}

// stream is the TCP stream of a connection, with the framing state of both directions.
type stream struct {
	*host
	tcp      conformance.Stream
	framer   iwarp.Framer
	deframer iwarp.Deframer
	// allowBadFrames turns off the check of padding, CRC and markers, for cases that check them.
	allowBadFrames bool
	// allowBadPad turns off the check of padding only.
	allowBadPad bool
	// startupOctets are received octets that are not yet parsed as a start-up frame.
	startupOctets []byte
	// endErr is how the device's direction has ended: io.EOF after FIN.
	endErr error
	// sendMSN and requestMSN are the MSNs of the peer's last messages to queues 0 and 1.
	sendMSN, requestMSN uint32
	// atomicMSN is the MSN of the peer's last message to queue 3, which is for Atomic Responses.
	atomicMSN uint32
}

// The STag and TO of the peer's memory, which differ from those that devices choose.
const (
	peerSTag = 0x0bad5eed
	peerTO   = 0x0000_7000_0000_1000
)

// onSetup makes the body of a case from a function that uses a connection with setup s.
func onSetup(s setup, body func(*conn)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.connect(s)) })
}

// onConn makes the body of a case from a function that uses a connection with four receives.
func onConn(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4}, body)
}

// onEachConn makes the body of a case that calls body for each value, with a new connection.
func onEachConn[T any](s setup, values []T, body func(*conn, T)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, v := range values {
			body(h.connect(s), v)
		}
	})
}

// connect makes a connection with the roles and start-up frames that s selects.
func (h *host) connect(s setup) *conn {
	hs := h.startHandshake(s)
	hs.exchangeFrames()
	return hs.establish()
}

// nextSendMSN is the MSN of the peer's next message to queue 0, which is for Sends.
func (c *stream) nextSendMSN() uint32 { return c.sendMSN + 1 }

// nextRequestMSN is the MSN of the peer's next message to queue 1, which is for Read Requests.
func (c *stream) nextRequestMSN() uint32 { return c.requestMSN + 1 }

// encode returns the octets of frames in the peer's stream, and records the last MSN of each queue:
// the peer's next messages to the queue continue from it.
func (c *stream) encode(frames ...iwarp.Segment) []byte {
	var b []byte
	for _, s := range frames {
		b = c.framer.Append(b, s)
		if s.DDP.MSN == nil {
			continue
		}
		switch s.Op() {
		case iwarp.OpReadRequest, iwarp.OpAtomicRequest:
			c.requestMSN = *s.DDP.MSN
		case iwarp.OpAtomicResponse:
			c.atomicMSN = *s.DDP.MSN
		case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate, iwarp.OpImmediate, iwarp.OpImmediateSE:
			c.sendMSN = *s.DDP.MSN
		}
	}
	return b
}

// write sends octets in a TCP segment of their own.
func (c *stream) write(b []byte) {
	if err := c.tcp.Write(b); err != nil {
		// The device may have reset the stream; the case checks what it sent before.
		c.Note("write: %v", err)
	}
}

// send sends frames, each in a separate TCP segment.
func (c *stream) send(frames ...iwarp.Segment) {
	for _, f := range frames {
		c.write(c.encode(f))
	}
}

// sendAndSync sends frames, and expects that the device processes them without a response.
func (c *conn) sendAndSync(frames ...iwarp.Segment) {
	c.send(frames...)
	c.syncByRead()
}

// sendCoalesced sends frames in as few TCP segments as possible.
func (c *stream) sendCoalesced(frames ...iwarp.Segment) { c.write(c.encode(frames...)) }

// nextFPDU returns the next FPDU of the device; false after the timeout or at the end of the
// stream. It fails the case if the framing is wrong.
func (c *stream) nextFPDU(timeout time.Duration) (iwarp.ReceivedFPDU, bool) {
	until := c.Now() + timeout
	for {
		if g, ok := c.deframer.Next(); ok {
			c.checkFraming(&g)
			return g, true
		}
		if !c.readStream(max(0, until-c.Now())) {
			return iwarp.ReceivedFPDU{}, false
		}
	}
}

// readStream reads the next octets of the stream; false after the timeout or at its end.
func (c *stream) readStream(timeout time.Duration) bool {
	if c.endErr != nil {
		return false
	}
	b, err := c.tcp.Read(timeout)
	if err != nil && !errors.Is(err, verbs.ErrTimeout) {
		c.endErr = err
	}
	c.deframer.Feed(b)
	return err == nil
}

// checkFraming fails the case if the MPA framing of an FPDU is wrong. allowBadFrames turns off the
// check, and allowBadPad its part about the pad.
func (c *stream) checkFraming(g *iwarp.ReceivedFPDU) {
	if c.allowBadFrames {
		return
	}
	n, pad := iwarp.Val(g.MPA.Length), g.MPA.Pad
	c.Check(n <= maxULPDU, fmt.Sprintf("a ULPDU of at most %d octets", maxULPDU), "%d in %v", n, g)
	c.Check(c.allowBadPad || bytes.Equal(pad, make([]byte, len(pad))), "a pad of zeros", "% x in %v", pad, g)
	for _, m := range g.Markers {
		c.Check(m.Ptr == m.Want && m.Reserved == 0, fmt.Sprintf("a marker at %d that points back %d", m.Offset, m.Want),
			"one that says %#04x%04x", m.Reserved, m.Ptr)
	}
	c.Check(!c.framer.CRC || iwarp.Val(g.MPA.CRCStatus) == iwarp.CRCCorrect, fmt.Sprintf("the CRC %08x", g.CorrectCRC), "%08x in %v", iwarp.Val(g.MPA.CRC), g)
}

// maxULPDU is the maximum ULPDU length (RFC 5044 section 3).
const maxULPDU = 64768

// describeMissing describes what the device sent in place of a complete FPDU.
func (c *stream) describeMissing() string {
	switch part := c.deframer.Pending(); {
	case c.endErr != nil && len(part) > 0:
		return fmt.Sprintf("%s inside an FPDU", describeEnd(c.endErr))
	case c.endErr != nil:
		return describeEnd(c.endErr)
	case len(part) > 0:
		return fmt.Sprintf("%d octets of an FPDU and no more in %v: % x", len(part), c.ResponseTimeout(), head(part))
	}
	return fmt.Sprintf("nothing in %v", c.ResponseTimeout())
}

// head returns the first octets of b, for messages.
func head(b []byte) []byte { return b[:min(len(b), 32)] }

// expect fails the case unless the next FPDU matches want. It returns the FPDU.
func (c *stream) expect(want iwarp.Segment) iwarp.ReceivedFPDU {
	got := c.mustNextFPDU(want.String())
	c.checkFPDU(want, got)
	return got
}

// mustNextFPDU returns the next FPDU, or fails the case; want describes the expected FPDU.
func (c *stream) mustNextFPDU(want string) iwarp.ReceivedFPDU {
	g, ok := c.nextFPDU(c.ResponseTimeout())
	if !ok {
		c.Fail(want, "%s", c.describeMissing())
	}
	return g
}

// checkFPDU fails the case unless an FPDU matches want.
func (c *stream) checkFPDU(want iwarp.Segment, got iwarp.ReceivedFPDU) {
	if d := iwarp.Diff(want, got); d != nil {
		c.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// nextFPDUs returns the next n FPDUs, or fails the case.
func (c *stream) nextFPDUs(n int) []iwarp.ReceivedFPDU {
	all := make([]iwarp.ReceivedFPDU, n)
	for i := range all {
		all[i] = c.mustNextFPDU(fmt.Sprintf("FPDU %d of %d", i+1, n))
	}
	return all
}

// nextMessage returns the segments of the next message of the device, which must be of opcode op.
func (c *stream) nextMessage(op iwarp.Opcode) []iwarp.ReceivedFPDU {
	for segments := []iwarp.ReceivedFPDU{}; ; {
		g := c.expect(iwarp.Op(op))
		if segments = append(segments, g); iwarp.Val(g.DDP.Last) {
			return segments
		}
	}
}

// data returns n octets of payload.
func data(n int) []byte { return rig.Data(n) }

// addrOf returns the STag, which is the R_Key, and the TO of an octet of a region.
func addrOf(m *rig.Memory, off int) iwarp.Addr {
	return iwarp.At(uint32(m.RKey()), m.Addr()+uint64(off))
}

// targetAddr returns the address of an octet of targetMem.
func (c *conn) targetAddr(off int) iwarp.Addr { return addrOf(c.targetMem, off) }

// writeTo returns a Write of the peer, of b to the address.
func writeTo(at iwarp.Addr, b []byte) iwarp.Segment { return iwarp.Write(at.STag, at.TO, b) }

// peerWrite returns a Write of the peer, of b to targetMem at off.
func (c *conn) peerWrite(off int, b []byte) iwarp.Segment { return writeTo(c.targetAddr(off), b) }

// readFrom returns a Read Request of the peer for n octets at the address.
func (c *conn) readFrom(at iwarp.Addr, n int) iwarp.Segment {
	return iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), uint32(n), at)
}

// peerRead returns a Read Request of the peer for n octets of targetMem.
func (c *conn) peerRead(off, n int) iwarp.Segment { return c.readFrom(c.targetAddr(off), n) }

// postBatch posts n requests of the device in one call. wr returns request i.
func (c *conn) postBatch(n int, wr func(i int) verbs.SendWR) {
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = wr(i)
	}
	c.PostSend(c.qp, wrs...)
}

// wr returns a signaled work request of the device for n bytes of localMem at offset off.
func (c *conn) wr(op verbs.WROpcode, id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(off, n),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}

// withoutData makes a work request zero-length, without a scatter/gather list.
func withoutData(wr verbs.SendWR) verbs.SendWR {
	wr.SGL = nil
	return wr
}

func (c *conn) sendWR(id uint64, off, n int) verbs.SendWR { return c.wr(verbs.OpSend, id, off, n) }
func (c *conn) writeWR(id uint64, off, n int) verbs.SendWR {
	return c.wr(verbs.OpRDMAWrite, id, off, n)
}

func (c *conn) readWR(id uint64, off, n int) verbs.SendWR { return c.wr(verbs.OpRDMARead, id, off, n) }
