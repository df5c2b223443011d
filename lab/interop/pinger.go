package interop

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Work requests of a pinger.
const (
	wrSend = iota + 1
	wrRead
	wrWrite
	wrRecv // and those above: the slot is the difference
)

// pinger is our end of one rping connection.
type pinger struct {
	qp   verbs.QP
	comp *completions
	closers

	source, sink, messages []byte
	sourceMR, sinkMR, msMR verbs.MR

	sending int   // messages not yet completed
	slots   []int // that hold messages not yet looked at
	ended   bool  // the peer has disconnected
}

// Layout of the message buffer: one to send, the rest to receive.
const recvSlots = 2

func newPinger(dev verbs.Context, p Ping) (_ *pinger, err error) {
	l := &pinger{
		source: make([]byte, p.Size), sink: make([]byte, p.Size),
		messages: make([]byte, (1+recvSlots)*BufferInfoLen),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, pd)
	if l.comp, err = newCompletions(dev, 16, p.Events); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, closerFunc(l.comp.close))
	for _, r := range []struct {
		mr     *verbs.MR
		buf    []byte
		access verbs.Access
	}{
		{&l.sourceMR, l.source, verbs.AccessRemoteRead},
		{&l.sinkMR, l.sink, verbs.AccessLocalWrite | verbs.AccessRemoteWrite},
		{&l.msMR, l.messages, verbs.AccessLocalWrite},
	} {
		if *r.mr, err = pd.RegMR(verbs.MRInit{Buf: r.buf, Access: r.access}); err != nil {
			return nil, err
		}
		l.closers = append(l.closers, *r.mr)
	}
	l.qp, err = dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: pd, SendCQ: l.comp.cq, RecvCQ: l.comp.cq,
		Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: recvSlots, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, l.qp)
	if err := awaitConnection(dev, l.qp, verbs.AccessRemoteRead|verbs.AccessRemoteWrite); err != nil {
		return nil, err
	}
	for slot := range recvSlots {
		if err := l.postRecv(slot); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *pinger) queuePair() verbs.QP { return l.qp }

func (l *pinger) postRecv(slot int) error {
	_, err := l.qp.PostRecv([]verbs.RecvWR{{
		WRID: wrRecv + uint64(slot),
		SGL:  []verbs.SGE{verbs.SGEOf(l.msMR, (1+slot)*BufferInfoLen, BufferInfoLen)},
	}})
	return err
}

// ask is ping number n as the client makes it.
func (l *pinger) ask(ctx context.Context, n int) error {
	PingText(l.source, n)
	clear(l.sink)
	for _, step := range []struct {
		what string
		mr   verbs.MR
	}{{"read", l.sourceMR}, {"write", l.sinkMR}} {
		if err := l.send(ctx, BufferInfo{Addr: step.mr.Addr(), RKey: step.mr.RKey(), Size: uint32(step.mr.Len())}); err != nil {
			return fmt.Errorf("offering memory to %s: %w", step.what, err)
		}
		if _, err := l.recv(ctx); err != nil {
			return fmt.Errorf("waiting for the server's %s: %w", step.what, err)
		}
	}
	return checkPing(l.sink, n)
}

// answer is ping number n as the server answers it.
func (l *pinger) answer(ctx context.Context, n int) error {
	clear(l.sink)
	from, err := l.recv(ctx)
	if err != nil {
		return fmt.Errorf("waiting for an offer to read: %w", err)
	}
	if int(from.Size) != len(l.sink) {
		return fmt.Errorf("client offers %d bytes, want %d: start rping with -S %d", from.Size, len(l.sink), len(l.sink))
	}
	if err := l.rdma(ctx, wrRead, verbs.OpRDMARead, l.sinkMR, from); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if err := checkPing(l.sink, n); err != nil {
		return err
	}
	if err := l.send(ctx, BufferInfo{}); err != nil {
		return err
	}
	to, err := l.recv(ctx)
	if err != nil {
		return fmt.Errorf("waiting for an offer to write: %w", err)
	}
	if err := l.rdma(ctx, wrWrite, verbs.OpRDMAWrite, l.sinkMR, to); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return l.send(ctx, BufferInfo{})
}

// send posts a message. The one before it must have completed: they share a
// buffer.
func (l *pinger) send(ctx context.Context, m BufferInfo) error {
	if err := l.drain(ctx); err != nil {
		return err
	}
	m.Append(l.messages[:0])
	_, err := l.qp.PostSend([]verbs.SendWR{{
		WRID: wrSend, Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{verbs.SGEOf(l.msMR, 0, BufferInfoLen)},
	}})
	l.sending++
	return err
}

// drain waits until every message sent has completed.
func (l *pinger) drain(ctx context.Context) error {
	for l.sending > 0 {
		if err := l.reap(ctx, wrSend); err != nil {
			return err
		}
	}
	return nil
}

// rdma posts a read into mr or a write from it and waits for its completion.
func (l *pinger) rdma(ctx context.Context, id uint64, op verbs.WROpcode, mr verbs.MR, peer BufferInfo) error {
	_, err := l.qp.PostSend([]verbs.SendWR{{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled,
		SGL:    []verbs.SGE{verbs.SGEOf(mr, 0, min(mr.Len(), int(peer.Size)))},
		Remote: verbs.Remote{Addr: peer.Addr, RKey: peer.RKey},
	}})
	if err != nil {
		return err
	}
	return l.reap(ctx, id)
}

// recv waits for the peer's next message.
func (l *pinger) recv(ctx context.Context) (m BufferInfo, err error) {
	for len(l.slots) == 0 {
		if err := l.reap(ctx, wrRecv); err != nil {
			return m, err
		}
	}
	slot := l.slots[0]
	l.slots = l.slots[1:]
	if err := m.Parse(l.messages[(1+slot)*BufferInfoLen:][:BufferInfoLen]); err != nil {
		return m, err
	}
	return m, l.postRecv(slot)
}

// reap takes completions until it has had one for the work request want. The
// others it may meet are those of earlier sends, and messages that came early.
func (l *pinger) reap(ctx context.Context, want uint64) error {
	for had := false; !had; {
		if l.ended && want == wrRecv {
			return errEnded
		}
		wcs, err := l.comp.next(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			id := min(wcs[i].WRID, wrRecv)
			had = had || id == want
			if err := l.note(&wcs[i], id); err != nil {
				return err
			}
		}
	}
	return nil
}

// errEnded is met by who waits for a message on a connection that has ended.
var errEnded = errors.New("the connection has ended")

// note books one completion, which must be what its work request was for. When
// the peer disconnects, the receives that wait are flushed, and only they.
func (l *pinger) note(wc *verbs.WC, id uint64) error {
	opcodes := [...]verbs.WCOpcode{wrSend: verbs.WCOpSend, wrRead: verbs.WCOpRDMARead, wrWrite: verbs.WCOpRDMAWrite, wrRecv: verbs.WCOpRecv}
	switch {
	case id == wrRecv && wc.Status == verbs.WCWRFlushErr:
		l.ended = true
		return nil
	case wc.Status != verbs.WCSuccess:
		return fmt.Errorf("%v (vendor error %#x) for work request %d", wc.Status, wc.VendorErr, wc.WRID)
	case id == 0 || wc.Opcode != opcodes[id]:
		return fmt.Errorf("unexpected completion %+v", *wc)
	case id == wrSend:
		l.sending--
	case id == wrRecv && wc.ByteLen != BufferInfoLen:
		return fmt.Errorf("%w: %d bytes", ErrBufferInfo, wc.ByteLen)
	case id == wrRecv:
		l.slots = append(l.slots, int(wc.WRID-wrRecv))
	}
	return nil
}
