package perflab

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

// LinkStream measures the goodput from link tx to link rx, with the same work per segment
// as Stream. The links must be idle, and stay open.
func LinkStream(tx, rx link.PacketLink, to netip.AddrPort, cfg RawUDPStreamConfig) (RawUDPStreamResult, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return RawUDPStreamResult{}, err
	}
	return runStream(cfg, newLinkSender(tx, to, cfg), &linkReceiver{l: rx, ds: make([]link.Datagram, 64)})
}

type linkSender struct {
	l    link.PacketLink
	ds   []link.Datagram
	bufs [][]byte
	left []link.Datagram // rest of the batch
}

func newLinkSender(l link.PacketLink, to netip.AddrPort, cfg RawUDPStreamConfig) *linkSender {
	t := &linkSender{l: l, ds: make([]link.Datagram, cfg.BatchSegments)}
	arena := make([]byte, cfg.BatchSegments*cfg.SegmentBytes)
	for i := range t.ds {
		buf := arena[i*cfg.SegmentBytes:][:cfg.SegmentBytes]
		if cfg.Scattered {
			buf = make([]byte, cfg.SegmentBytes+64)[:cfg.SegmentBytes]
		}
		t.bufs = append(t.bufs, buf)
		t.ds[i] = link.Datagram{Dst: to, Payload: buf}
	}
	return t
}

func (t *linkSender) buffers() [][]byte { return t.bufs }

func (t *linkSender) flush() (bool, error) {
	if len(t.left) == 0 {
		t.left = t.ds
	}
	n, err := t.l.Send(0, t.left)
	if err != nil {
		return false, fmt.Errorf("link stream: send: %w", err)
	}
	t.left = t.left[n:]
	return len(t.left) == 0, nil
}

type linkReceiver struct {
	l  link.PacketLink
	ds []link.Datagram
}

func (r *linkReceiver) receive(o *segmentReader) (int, error) {
	n, err := r.l.Recv(0, r.ds)
	if err != nil {
		return 0, fmt.Errorf("link stream: receive: %w", err)
	}
	for i := range r.ds[:n] {
		o.read(r.ds[i].Payload)
	}
	return n, nil
}
