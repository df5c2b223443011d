package providertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Messenger is one side of a ping-pong or a message stream, in real time. It does not allocate.
type Messenger struct {
	*End
	Block bool           // wait for events instead of polling
	Sends []verbs.SendWR // a batch of equal, unsignaled sends
	recv  []verbs.RecvWR // a single receive, posted as often as needed
	wcs   []verbs.WC
}

// NewMessenger returns one side of an exchange of messages of size bytes. It sends them, up to 16
// with one post, from the first half of e.Buf, and receives into the second. With block it waits
// for completion events, otherwise it polls. ud addresses the peer of a UD queue pair.
func NewMessenger(e *End, size int, block bool, ud verbs.UD) *Messenger {
	const maxWCs, maxSends = 64, 16 // of one poll, and of one post
	p := &Messenger{End: e, Block: block, wcs: make([]verbs.WC, maxWCs)}
	grh := 0
	if e.QP.Type() == verbs.QPTypeUD {
		grh = verbs.GRHLen
	}
	p.recv = []verbs.RecvWR{{SGL: e.SGL(len(e.Buf)/2, grh+size)}}
	for range maxSends {
		p.Sends = append(p.Sends, verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, size), UD: ud})
	}
	return p
}

// PostRecvs posts n receives, all into the same memory, with one call for each.
func (p *Messenger) PostRecvs(n int) error {
	for range n {
		if _, err := p.QP.PostRecv(p.recv); err != nil {
			return err
		}
	}
	return nil
}

// PostSends posts n sends, at most 16, with one call.
func (p *Messenger) PostSends(n int) error {
	_, err := p.QP.PostSend(p.Sends[:n])
	return err
}

// AwaitWCs waits for completions, which must be successes. They are valid until the next call.
func (p *Messenger) AwaitWCs() ([]verbs.WC, error) {
	n, err := p.NextWC(p.Block, p.wcs, 10*time.Second)
	for i := range n {
		if p.wcs[i].Status != verbs.WCSuccess {
			return nil, fmt.Errorf("%v: %v", p.wcs[i].Opcode, p.wcs[i].Status)
		}
	}
	return p.wcs[:n], err
}

// AwaitMessages waits for messages, posts a new receive for each, and returns the number of
// messages. As sends are unsignaled by default, every completion is taken for a message.
func (p *Messenger) AwaitMessages() (int, error) {
	wcs, err := p.AwaitWCs()
	if err != nil {
		return 0, err
	}
	return len(wcs), p.PostRecvs(len(wcs))
}

// answer waits for a message and sends one back, rounds times.
func (p *Messenger) answer(rounds int) error {
	for range rounds {
		if _, err := p.AwaitMessages(); err != nil {
			return err
		}
		if err := p.PostSends(1); err != nil {
			return err
		}
	}
	return nil
}

// PingPong sends messages from a, which b answers, one at a time, and returns half the median
// round-trip time. Both must have a receive posted; each receive that completes is posted again.
func PingPong(a, b *Messenger, rounds int) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() { errs <- b.answer(rounds) }()
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := a.PostSends(1); err != nil {
			return 0, err
		}
		if _, err := a.AwaitMessages(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}
