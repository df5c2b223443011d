package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Where packets may be lost, and nobody repeats them, a message is sent so often, with so
// long a pause, before it counts as one that never comes. One of sixteen packets passes
// a loss of one in twenty more often than one time in three.
const (
	unreliableTries = 40
	unreliablePause = 300 * time.Millisecond
)

// again runs an exchange without acknowledgements, again and again where packets are
// lost, until it was seen to arrive.
func (x *exchange) again(once func(patience time.Duration) error) error {
	if !x.lossy {
		return once(x.far.patience)
	}
	var err error
	for range unreliableTries {
		if err = once(unreliablePause); !errors.Is(err, errSilent) {
			return err
		}
	}
	return err
}

// unreliable sends messages over UC, or writes with immediate data.
func unreliable(writes bool) func(*exchange) error {
	return func(x *exchange) error {
		x.src.put(0, x.data)
		x.dst.expect(0, x.data)
		sgl, want, done := x.dst.sge(0, len(x.dst.area())), arrival{op: verbs.WCOpRecv, size: x.Size}, verbs.WCOpSend
		op := verbs.OpSend
		if writes {
			sgl, op, done = nil, verbs.OpRDMAWriteImm, verbs.WCOpRDMAWrite
			want = arrival{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
		}
		number, err := x.far.receive(sgl)
		if err != nil {
			return err
		}
		err = x.again(func(patience time.Duration) error {
			wr := x.request(op)
			wr.Remote, wr.Imm = x.dst.remote(), want.imm
			if err := x.near.post(wr); err != nil {
				return err
			}
			if err := x.near.sent(wr.WRID, done); err != nil {
				return err
			}
			return x.far.arrived(number, want, patience)
		})
		if err != nil {
			return err
		}
		return x.checked()
	}
}

// datagram sends one, and checks from where it says that it is.
func datagram(x *exchange) error {
	x.src.put(0, x.data)
	number, err := x.far.receive(x.dst.sge(0, len(x.dst.area())))
	if err != nil {
		return err
	}
	want := arrival{op: verbs.WCOpRecv, size: verbs.GRHLen + x.Size, flags: verbs.WCWithImm, imm: immediate, from: x.near.qp.QPN()}
	err = x.again(func(patience time.Duration) error {
		wr := x.request(verbs.OpSendImm)
		wr.Imm = immediate
		if err := x.near.post(wr); err != nil {
			return err
		}
		if err := x.near.sent(wr.WRID, verbs.WCOpSend); err != nil {
			return err
		}
		return x.far.arrived(number, want, patience)
	})
	if err != nil {
		return err
	}
	if err := x.far.look(); err != nil {
		return err
	}
	area := x.dst.area()[:verbs.GRHLen]
	reply, err := verbs.InitAHFromWC(1, 0, &verbs.WC{Flags: verbs.WCWithGRH}, area)
	if err != nil {
		return x.far.fault("find the header of a datagram", err)
	}
	if from := reply.GRH.DGID.Addr(); from != x.near.addr {
		return x.far.differs("a datagram is from %v, want %v", from, x.near.addr)
	}
	x.dst.expect(0, area) // as it was found to be
	x.dst.expect(verbs.GRHLen, x.data)
	return x.checked()
}
