package iwarp

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// messageKind is a kind of message that the peer can send.
type messageKind struct {
	op iwarp.Opcode
	// valid returns a valid message of the peer. A response belongs to a request that valid makes
	// the device send.
	valid makeSegment
	// expectEffect fails the case unless the device has processed the message s.
	expectEffect func(c *conn, s iwarp.Segment)
}

// kindLen is the length of the payload of a message of each messageKind.
const kindLen = 16

// The places in localMem for the results of the device's requests, after the receives, and their WR
// ID.
const (
	kindResult = 512
	kindWRID   = 900
)

// sendKind returns the kind of Send with an opcode, which invalidates a new window if invalidates
// is set.
func sendKind(op iwarp.Opcode, invalidates bool) messageKind {
	return messageKind{op: op, valid: func(c *conn) iwarp.Segment {
		s := iwarp.Send(c.nextSendMSN(), data(kindLen)).Opcode(op)
		if invalidates {
			_, at := c.newWindow(verbs.AccessRemoteWrite)
			s = s.InvalidateSTag(at.STag)
		}
		return s
	}, expectEffect: func(c *conn, s iwarp.Segment) {
		id := uint64(*s.DDP.MSN) // both the IDs of receives and the MSNs of Sends begin at 1
		wc := c.ExpectRecv(id, len(s.Payload))
		c.ExpectBytes(c.localMem, int(id-1)*c.recvLen, s.Payload)
		if invalidates {
			c.checkInvalidated(wc, *s.RDMAP.InvalidateSTag)
		}
	}}
}

var (
	writeKind = messageKind{
		op:    iwarp.OpWrite,
		valid: func(c *conn) iwarp.Segment { return c.peerWrite(64, data(kindLen)) },
		expectEffect: func(c *conn, s iwarp.Segment) {
			c.syncByRead()
			c.ExpectBytes(c.targetMem, 64, s.Payload)
		},
	}
	readKind = messageKind{
		op:           iwarp.OpReadRequest,
		valid:        func(c *conn) iwarp.Segment { return c.peerRead(64, kindLen) },
		expectEffect: func(c *conn, _ iwarp.Segment) { c.expectReadResponse(c.targetMem.Buf[64:][:kindLen]) },
	}
	responseKind = messageKind{
		op: iwarp.OpReadResponse,
		valid: func(c *conn) iwarp.Segment {
			return iwarp.ReadResponseTo(c.deviceRead(kindWRID, kindResult, kindLen), data(kindLen))
		},
		expectEffect: func(c *conn, s iwarp.Segment) {
			c.ExpectCompletion(kindWRID, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, kindResult, s.Payload)
		},
	}
	terminateKind = messageKind{
		op:    iwarp.OpTerminate,
		valid: func(*conn) iwarp.Segment { return iwarp.Terminate(iwarp.RDMAPRemoteUnspecified) },
		expectEffect: func(c *conn, _ iwarp.Segment) {
			c.expectEnd()
			c.expectDisconnect()
			c.AwaitState(c.qp, verbs.QPStateErr)
		},
	}
	atomicKind = messageKind{
		op:    iwarp.OpAtomicRequest,
		valid: func(c *conn) iwarp.Segment { return c.peerFetchAdd(7, 5) },
		expectEffect: func(c *conn, _ iwarp.Segment) {
			g := c.expect(iwarp.Op(iwarp.OpAtomicResponse))
			sum := binary.NativeEndian.AppendUint64(nil, *g.AtomicResponse.Original+5)
			c.ExpectBytes(c.targetMem, c.targetMem.WordOffset(0), sum)
		},
	}
	atomicResponseKind = messageKind{
		op: iwarp.OpAtomicResponse,
		valid: func(c *conn) iwarp.Segment {
			return iwarp.AtomicResponse(c.atomicMSN+1, c.deviceFetchAdd(kindWRID, kindResult), 0x0102030405060708)
		},
		expectEffect: func(c *conn, _ iwarp.Segment) {
			c.ExpectCompletion(kindWRID, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, kindResult, binary.NativeEndian.AppendUint64(nil, 0x0102030405060708))
		},
	}
)

// immediateKind returns the kind of immediate data with an opcode.
func immediateKind(op iwarp.Opcode) messageKind {
	const half = 0xfeedf00d // both halves have it: a device may deliver either
	return messageKind{
		op:           op,
		valid:        func(c *conn) iwarp.Segment { return iwarp.Immediate(c.nextSendMSN(), doubled(half)).Opcode(op) },
		expectEffect: func(c *conn, s iwarp.Segment) { c.expectRecvImm(uint64(*s.DDP.MSN), half) },
	}
}

// kindSetup is the setup of connections for messageKinds.
var kindSetup = setup{receives: 4, memLen: 1024}

// sendKinds returns the kinds of Send that the device supports.
func (h *host) sendKinds() []messageKind {
	kinds := []messageKind{sendKind(iwarp.OpSend, false), sendKind(iwarp.OpSendSE, false)}
	if h.Caps.Has(verbs.CapMWType2 | verbs.CapSendInv) {
		kinds = append(kinds, sendKind(iwarp.OpSendInvalidate, true), sendKind(iwarp.OpSendSEInvalidate, true))
	}
	return kinds
}

// kinds returns the kinds of message that the device supports, without Terminate.
func (h *host) kinds() []messageKind {
	kinds := append(h.sendKinds(), writeKind, readKind, responseKind)
	if h.Caps.Has(verbs.CapAtomics) {
		kinds = append(kinds, atomicKind, atomicResponseKind)
	}
	if h.immediateError() == nil {
		kinds = append(kinds, immediateKind(iwarp.OpImmediate), immediateKind(iwarp.OpImmediateSE))
	}
	return kinds
}

// immediateError returns nil if the device accepts a Write with immediate data, on a connection of
// its own, and the error of the verb if the device does not support it.
func (h *host) immediateError() error {
	probe := h.connect(setup{memLen: 64})
	_, err := probe.qp.PostSend([]verbs.SendWR{probe.writeImmWR(1, 0, 16, 7)})
	if errors.Is(err, verbs.ErrInvalid) {
		// A library without the opcode may return EINVAL. If a plain Write works, that is why.
		probe.PostSend(probe.qp, probe.writeWR(1, 0, 16))
		probe.ExpectCompletion(1, verbs.WCSuccess)
	}
	if errors.Is(err, verbs.ErrNotSupported) || errors.Is(err, verbs.ErrInvalid) {
		return err
	}
	h.Must("a Write with immediate data that is accepted", err)
	probe.ExpectCompletion(1, verbs.WCSuccess)
	return nil
}

// connectFor makes a connection for a kind of message, and notes the kind in the record.
func (h *host) connectFor(k messageKind) *conn {
	c := h.connect(kindSetup)
	c.Note("%v", k.op)
	return c
}

// Which kinds onEachUntagged selects: those of RFC 5040, those of RFC 7306, or all.
func baseKinds(op iwarp.Opcode) bool      { return op <= iwarp.OpTerminate }
func extensionKinds(op iwarp.Opcode) bool { return op > iwarp.OpTerminate }
func allKinds(iwarp.Opcode) bool          { return true }

// onEachUntagged makes the body of a case that calls body for each untagged kind of message for
// whose opcode selects returns true.
func onEachUntagged(selects func(iwarp.Opcode) bool, body func(h *host, k messageKind)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, k := range h.kinds() {
			if !k.op.Tagged() && selects(k.op) {
				body(h, k)
			}
		}
	})
}

// sendAndExpect sends a valid message of this kind, and fails the case unless it takes effect. Later
// checks expect the memory unchanged since then.
func (c *conn) sendAndExpect(k messageKind) {
	s := k.valid(c)
	c.send(s)
	k.expectEffect(c, s)
	c.localMem.Snapshot()
	c.targetMem.Snapshot()
}

// expectKindRefused sends a changed message of this kind, on a connection of its own, and fails the
// case unless it causes a Terminate with one of the causes and has no effect.
func (h *host) expectKindRefused(k messageKind, change func(iwarp.Segment) iwarp.Segment, causes ...iwarp.Cause) {
	c := h.connectFor(k)
	c.expectRefusalWithoutEffect(change(k.valid(c)), causes...)
}
