package interop

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// run runs the program, from the side channel to the last close.
func (r *pingPongRun) run(ctx context.Context) (Result, error) {
	defer r.close()
	if err := r.exchangeEndpoints(ctx); err != nil {
		return Result{}, fmt.Errorf("side channel %v: %w", r.SideChannel, err)
	}
	start := time.Now()
	err := r.exchangeMessages(ctx)
	result := Result{Sent: r.sent, Received: r.received, Elapsed: time.Since(start)}
	if err != nil {
		return result, fmt.Errorf("after %d of %d sent and %d received: %w", r.sent, r.Iters, r.received, err)
	}
	return result, r.close()
}

// exchangeMessages exchanges messages until both counts are reached.
func (r *pingPongRun) exchangeMessages(ctx context.Context) error {
	for i := range r.qps {
		r.qps[i].receiving = true
		if r.Role == Client {
			if err := r.send(i); err != nil {
				return err
			}
		}
	}
	return r.comp.handle(ctx, r.handle, func() bool { return r.sent >= r.Iters && r.received >= r.Iters })
}

// handle checks one completion. It sends the next message of a queue pair when the last one has
// completed and the peer's has arrived.
func (r *pingPongRun) handle(wc *verbs.WC) error {
	i := slices.IndexFunc(r.qps, func(qp pingPongQP) bool { return qp.qp.QPN() == wc.QPN })
	if i < 0 {
		return fmt.Errorf("completion for queue pair %#x, which is not ours", uint32(wc.QPN))
	}
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("queue pair %#x: %w", uint32(wc.QPN), completionError(wc))
	}
	qp := &r.qps[i]
	if wc.WRID&sendWRID != 0 {
		if !qp.sending || wc.WRID != sendWRID|uint64(i) || wc.Opcode != verbs.WCOpSend {
			return fmt.Errorf("queue pair %#x: unexpected completion %+v", uint32(wc.QPN), *wc)
		}
		qp.sending = false
		qp.sent++
		r.sent++
	} else if err := r.receive(qp, wc); err != nil {
		return fmt.Errorf("message %d of queue pair %#x: %w", qp.received, uint32(wc.QPN), err)
	}
	if qp.sending || qp.receiving || r.sent >= r.Iters {
		return nil
	}
	qp.receiving = true
	return r.send(i)
}

// send posts the next message of queue pair i.
func (r *pingPongRun) send(i int) error {
	qp := &r.qps[i]
	buf := r.sendBuf[i*r.Size:][:r.Size]
	r.compose(qp, buf)
	wr := sendWR(sendWRID|uint64(i), buf, r.sendMR, i*r.Size)
	if r.Tool == UD {
		wr.UD = verbs.UD{AH: r.ah, QPN: qp.peer.QPN, QKey: pingPongQKey}
	}
	if err := postSend(qp.qp, wr); err != nil {
		return err
	}
	qp.sending = true
	return nil
}

// receive checks the message in a slot and posts the slot again.
func (r *pingPongRun) receive(qp *pingPongQP, wc *verbs.WC) error {
	if !qp.receiving || wc.Opcode != verbs.WCOpRecv || wc.WRID >= uint64(slotsPerQP*len(r.qps)) {
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
	slot := r.slot(int(wc.WRID))
	head, body, guard := slot[:r.headLen()], slot[r.headLen():][:r.Size], slot[len(slot)-guardLen:]
	if want := len(head) + r.Size; int(wc.ByteLen) != want {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, want)
	}
	if r.Tool == UD {
		if err := r.checkSender(qp, wc, head); err != nil {
			return err
		}
	}
	if err := r.inspect(qp, body); err != nil {
		return err
	}
	if err := checkGuard(guard); err != nil {
		return err
	}
	qp.receiving = false
	qp.received++
	r.received++
	return r.postRecv(int(wc.WRID))
}

// checkSender checks what a datagram's completion and header say of its sender.
func (r *pingPongRun) checkSender(qp *pingPongQP, wc *verbs.WC, head []byte) error {
	reply, err := verbs.InitAHFromWC(devicePort, uint8(r.gidIndex), wc, head)
	if err != nil {
		return err
	}
	if wc.SrcQP != qp.peer.QPN || reply.GRH.DGID != qp.peer.GID {
		return fmt.Errorf("from queue pair %#x at %v, want %#x at %v", uint32(wc.SrcQP), reply.GRH.DGID, uint32(qp.peer.QPN), qp.peer.GID)
	}
	return nil
}
