package perflab

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

// LinkStream measures the goodput from the link of tx to link rx, with the same work per
// segment as RawUDPStream. The links must be idle, and stay open.
func LinkStream(tx *linkSender, rx link.PacketLink, cfg RawStreamConfig) (RawUDPStreamResult, error) {
	return runStream(cfg, [2]int{}, tx, &linkReceiver{l: rx, ds: make([]link.Datagram, 64)})
}

type linkSender struct {
	l    link.PacketLink
	ds   []link.Datagram
	bufs [][]byte
	left []link.Datagram // rest of the batch
}

// newLinkSender returns a sender of segments that are adjacent in memory, or scattered.
func newLinkSender(l link.PacketLink, to netip.AddrPort, segmentBytes int, scattered bool) *linkSender {
	t := &linkSender{l: l, ds: make([]link.Datagram, batchSegments(segmentBytes))}
	arena := make([]byte, len(t.ds)*segmentBytes)
	for i := range t.ds {
		buf := arena[i*segmentBytes:][:segmentBytes]
		if scattered {
			buf = make([]byte, segmentBytes+64)[:segmentBytes]
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
