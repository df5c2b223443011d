package interop

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// run plays the player's part, from the side channel to the last close.
func (l *player) run(ctx context.Context) (Result, error) {
	defer l.close()
	if err := l.meet(ctx); err != nil {
		return Result{}, fmt.Errorf("side channel %v: %w", l.SideChannel, err)
	}
	start := time.Now()
	err := l.play(ctx)
	result := Result{Sent: l.sent, Received: l.received, Elapsed: time.Since(start)}
	if err != nil {
		return result, fmt.Errorf("after %d of %d sent and %d received: %w", l.sent, l.Iters, l.received, err)
	}
	return result, l.close()
}

// play exchanges messages until both counts are reached.
func (l *player) play(ctx context.Context) error {
	for i := range l.lanes {
		l.lanes[i].awaiting = true
		if l.Role == Client {
			if err := l.send(i); err != nil {
				return err
			}
		}
	}
	for l.sent < l.Iters || l.received < l.Iters {
		wcs, err := l.comp.next(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			if err := l.handle(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle takes one completion, and answers when the lane's last message has
// gone and the peer's next has come.
func (l *player) handle(wc *verbs.WC) error {
	i := l.laneOf(wc.QPN)
	if i < 0 {
		return fmt.Errorf("completion for queue pair %#x, which is not ours", uint32(wc.QPN))
	}
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("queue pair %#x: %v (vendor error %#x) for work request %#x", uint32(wc.QPN), wc.Status, wc.VendorErr, wc.WRID)
	}
	lane := &l.lanes[i]
	if wc.WRID&sendWRID != 0 {
		if !lane.sending || wc.WRID != sendWRID|uint64(i) || wc.Opcode != verbs.WCOpSend {
			return fmt.Errorf("queue pair %#x: unexpected completion %+v", uint32(wc.QPN), *wc)
		}
		lane.sending = false
		lane.sent++
		l.sent++
	} else if err := l.receive(lane, wc); err != nil {
		return fmt.Errorf("message %d of queue pair %#x: %w", lane.received, uint32(wc.QPN), err)
	}
	if lane.sending || lane.awaiting || l.sent >= l.Iters {
		return nil
	}
	lane.awaiting = true
	return l.send(i)
}

func (l *player) laneOf(qpn verbs.QPN) int {
	for i := range l.lanes {
		if l.lanes[i].qp.QPN() == qpn {
			return i
		}
	}
	return -1
}

// send posts the next message of lane i.
func (l *player) send(i int) error {
	lane := &l.lanes[i]
	buf := l.sendBuf[i*l.Size:][:l.Size]
	l.compose(lane, buf)
	wr := verbs.SendWR{WRID: sendWRID | uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if l.Size <= maxInline {
		wr.Flags |= verbs.SendInline
		wr.Inline = buf
	} else {
		wr.SGL = []verbs.SGE{verbs.SGEOf(l.sendMR, i*l.Size, l.Size)}
	}
	if l.Tool == UD {
		wr.UD = verbs.UD{AH: l.ah, QPN: lane.theirs.QPN, QKey: pingPongQKey}
	}
	if _, err := lane.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return err
	}
	if wr.Flags&verbs.SendInline != 0 {
		clear(buf) // it is ours again; the message must not notice
	}
	lane.sending = true
	return nil
}

// receive checks the message in a slot and posts the slot again.
func (l *player) receive(lane *lane, wc *verbs.WC) error {
	if !lane.awaiting || wc.Opcode != verbs.WCOpRecv || wc.WRID >= uint64(slotsPerQP*len(l.lanes)) {
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
	slot := l.slot(int(wc.WRID))
	head, body, guard := slot[:l.headLen()], slot[l.headLen():][:l.Size], slot[len(slot)-guardLen:]
	if want := len(head) + l.Size; int(wc.ByteLen) != want {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, want)
	}
	if l.Tool == UD {
		if err := l.checkSender(lane, wc, head); err != nil {
			return err
		}
	}
	if err := l.inspect(lane, body); err != nil {
		return err
	}
	if err := check(guard, constant(guardByte)); err != nil {
		return fmt.Errorf("memory behind the buffer was written: %w", err)
	}
	lane.awaiting = false
	lane.received++
	l.received++
	return l.postRecv(int(wc.WRID))
}

// checkSender checks what a datagram's completion and header say of its sender.
func (l *player) checkSender(lane *lane, wc *verbs.WC, head []byte) error {
	reply, err := verbs.InitAHFromWC(devicePort, uint8(l.gidIndex), wc, head)
	if err != nil {
		return err
	}
	if wc.SrcQP != lane.theirs.QPN || reply.GRH.DGID != lane.theirs.GID {
		return fmt.Errorf("from queue pair %#x at %v, want %#x at %v", uint32(wc.SrcQP), reply.GRH.DGID, uint32(lane.theirs.QPN), lane.theirs.GID)
	}
	return nil
}
