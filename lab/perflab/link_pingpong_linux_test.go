package perflab

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
)

// LinkPingPong measures round trips between two links that are bound to addrA and addrB. To
// block they must be Waiters. The links must be idle, and stay open.
func LinkPingPong(a, b link.PacketLink, addrA, addrB netip.AddrPort, cfg RawPingPongConfig) (halfMicros float64, err error) {
	pa, err := newLinkEnd(a, addrB, cfg)
	if err != nil {
		return 0, err
	}
	pb, err := newLinkEnd(b, addrA, cfg)
	if err != nil {
		return 0, err
	}
	return runPingPong(cfg, [2]int{}, pa, pb)
}

type linkEnd struct {
	l      link.PacketLink
	waiter link.Waiter // nil to spin
	out    [1]link.Datagram
	in     [16]link.Datagram
}

func newLinkEnd(l link.PacketLink, peer netip.AddrPort, cfg RawPingPongConfig) (*linkEnd, error) {
	p := &linkEnd{l: l}
	p.out[0] = link.Datagram{Dst: peer, Payload: make([]byte, cfg.Bytes)}
	if cfg.Block {
		var ok bool
		if p.waiter, ok = l.(link.Waiter); !ok {
			return nil, fmt.Errorf("link ping-pong: a %T cannot block", l)
		}
	}
	return p, nil
}

func (p *linkEnd) send() error {
	for {
		if n, err := p.l.Send(0, p.out[:]); n == 1 || err != nil {
			return err
		}
	}
}

func (p *linkEnd) receive() error {
	var deadline time.Time
	for turns := 1; ; turns++ {
		if p.waiter != nil {
			// Wait before the first Recv, as blocking recvfrom does.
			if err := p.waiter.WaitReadable(ioTimeout); err != nil {
				return err
			}
		}
		if n, err := p.l.Recv(0, p.in[:]); n > 0 || err != nil {
			return err
		}
		if (turns%4096 == 0 || p.waiter != nil) && timedOut(&deadline) {
			return errNoReply
		}
	}
}
