package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Number of attempts and time per attempt for unacknowledged messages on a lossy link. A
// message of sixteen packets passes a loss of 5 % in more than one of three attempts.
const (
	unreliableTries = 40
	unreliablePause = 300 * time.Millisecond
)

// retryIfLossy runs an unacknowledged operation, and repeats it on a lossy link until it
// arrives.
func (x *exchange) retryIfLossy(once func(timeout time.Duration) error) error {
	if !x.lossy {
		return once(x.responder.timeout)
	}
	var err error
	for range unreliableTries {
		if err = once(unreliablePause); !errors.Is(err, errNoCompletion) {
			return err
		}
	}
	return err
}

// unreliableOp returns the operation of a UC SEND, or of a UC WRITE with immediate data.
func unreliableOp(writes bool) func(*exchange) error {
	return func(x *exchange) error {
		x.src.write(0, x.data)
		x.dst.expect(0, x.data)
		sgl, want, done := x.dst.sge(0, len(x.dst.area())), recvCompletion{op: verbs.WCOpRecv, size: x.Size}, verbs.WCOpSend
		op := verbs.OpSend
		if writes {
			sgl, op, done = nil, verbs.OpRDMAWriteImm, verbs.WCOpRDMAWrite
			want = recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
		}
		number, err := x.responder.postRecv(sgl)
		if err != nil {
			return err
		}
		err = x.retryIfLossy(func(timeout time.Duration) error {
			wr := x.request(op)
			wr.Remote, wr.Imm = x.dst.remote(), want.imm
			if err := x.requester.post(wr); err != nil {
				return err
			}
			if err := x.requester.expectSent(wr.WRID, done); err != nil {
				return err
			}
			return x.responder.expectRecv(number, want, timeout)
		})
		if err != nil {
			return err
		}
		return x.checkMemory()
	}
}

// datagram sends a UD datagram, and checks its source address at the receiver.
func datagram(x *exchange) error {
	x.src.write(0, x.data)
	number, err := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	if err != nil {
		return err
	}
	want := recvCompletion{op: verbs.WCOpRecv, size: verbs.GRHLen + x.Size, flags: verbs.WCWithImm, imm: immediate, from: x.requester.qp.QPN()}
	err = x.retryIfLossy(func(timeout time.Duration) error {
		wr := x.request(verbs.OpSendImm)
		wr.Imm = immediate
		if err := x.requester.post(wr); err != nil {
			return err
		}
		if err := x.requester.expectSent(wr.WRID, verbs.WCOpSend); err != nil {
			return err
		}
		return x.responder.expectRecv(number, want, timeout)
	})
	if err != nil {
		return err
	}
	if err := x.responder.sync(); err != nil {
		return err
	}
	area := x.dst.area()[:verbs.GRHLen]
	reply, err := verbs.InitAHFromWC(1, 0, &verbs.WC{Flags: verbs.WCWithGRH}, area)
	if err != nil {
		return x.responder.verbError("parse the GRH of a datagram", err)
	}
	if from := reply.GRH.DGID.Addr(); from != x.requester.addr {
		return x.responder.mismatch("the source address of a datagram is %v, want %v", from, x.requester.addr)
	}
	x.dst.expect(0, area) // already checked
	x.dst.expect(verbs.GRHLen, x.data)
	return x.checkMemory()
}
