package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Number of attempts and time per attempt for unacknowledged messages on a lossy link. A
// message of sixteen packets passes a loss of 5 % in more than one of three attempts.
const (
	unreliableTries = 40
	unreliablePause = 300 * time.Millisecond
)

// sendUnreliable posts an unacknowledged request and waits for receive number, and repeats that
// on a lossy link until the message arrives.
func (x *exchange) sendUnreliable(op verbs.WROpcode, number uint64, want recvCompletion) {
	once := func(timeout time.Duration) error {
		return rig.Catch(func() {
			wr := x.request(op)
			wr.Remote, wr.Imm = x.dst.remote(), want.imm
			x.requester.post(wr)
			x.requester.expectSent(wr)
			x.responder.expectRecv(number, want, timeout)
		})
	}
	if !x.lossy {
		check(once(x.responder.timeout))
		return
	}
	var err error
	for range unreliableTries {
		if err = once(unreliablePause); !errors.Is(err, errNoCompletion) {
			break
		}
	}
	check(err)
}

// sendUC sends a message over UC.
func sendUC(x *exchange) {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	number := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	x.sendUnreliable(verbs.OpSend, number, recvCompletion{op: verbs.WCOpRecv, size: x.Size})
	x.checkMemory()
}

// writeImmUC writes with immediate data over UC.
func writeImmUC(x *exchange) {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	number := x.responder.postRecv(nil)
	x.sendUnreliable(verbs.OpRDMAWriteImm, number,
		recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate})
	x.checkMemory()
}

// datagram sends a UD datagram, and checks its source address at the receiver.
func datagram(x *exchange) {
	x.src.write(0, x.data)
	number := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	x.sendUnreliable(verbs.OpSendImm, number, recvCompletion{
		op: verbs.WCOpRecv, size: verbs.GRHLen + x.Size, flags: verbs.WCWithImm, imm: immediate, from: x.requester.qp.QPN(),
	})
	check(x.responder.sync())
	area := x.dst.area()[:verbs.GRHLen]
	reply, err := verbs.InitAHFromWC(1, 0, &verbs.WC{Flags: verbs.WCWithGRH}, area)
	check(x.responder.verbError("parse the GRH of a datagram", err))
	if from := reply.GRH.DGID.Addr(); from != x.requester.addr {
		check(x.responder.mismatch("the source address of a datagram is %v, want %v", from, x.requester.addr))
	}
	x.dst.expect(0, area) // already checked
	x.dst.expect(verbs.GRHLen, x.data)
	x.checkMemory()
}
