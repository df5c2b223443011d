package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Facts of udaddy, which takes no port.
const (
	DatagramPort = 7174
	cmQKey       = 0x01234567 // of every datagram queue pair made by rdma_cm
)

// Datagrams is one run of udaddy, of which we are one end: the client asks the
// connection manager for the server's queue pair, sends it datagrams, each with
// its own queue pair's number as immediate data, and gets as many back.
type Datagrams struct {
	Role Role
	// Addr is the server: whom we ask, or where we listen.
	Addr netip.AddrPort
	// Local is our address on the fabric.
	Local netip.Addr
	// Size is what a datagram holds, more than a header and at most the MTU.
	Size   int
	Count  int
	Events bool
	// Ready, if set, is called when a client may ask our server.
	Ready func()
}

// Run plays d on dev. As the client it checks the data that comes back; the
// client's own is whatever its memory held.
func (d Datagrams) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if d.Size <= verbs.GRHLen || d.Count < 1 {
		return Result{}, fmt.Errorf("udaddy needs more than %d bytes and one datagram, not %d and %d", verbs.GRHLen, d.Size, d.Count)
	}
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	p, err := newPostman(d, dev)
	if err != nil {
		return Result{}, fmt.Errorf("setting up: %w", err)
	}
	return p.run(ctx, cm)
}

// run plays the postman's part, to the last close.
func (p *postman) run(ctx context.Context, cm verbs.CM) (Result, error) {
	defer p.close()
	start := time.Now()
	var err error
	if p.Role == Client {
		err = p.write(ctx, cm)
	} else {
		err = p.answer(ctx, cm)
	}
	result := Result{Sent: p.sent, Received: p.received, Elapsed: time.Since(start)}
	if err != nil {
		return result, fmt.Errorf("after %d sent and %d received: %w", p.sent, p.received, err)
	}
	return result, p.close()
}

// write is the client.
func (p *postman) write(ctx context.Context, cm verbs.CM) error {
	peer, err := resolve(ctx, cm, p.Addr)
	if err != nil {
		return fmt.Errorf("asking for %v: %w", p.Addr, err)
	}
	if peer.QKey != cmQKey {
		return fmt.Errorf("%v has key %#x, want that of rdma_cm, %#x", p.Addr, peer.QKey, cmQKey)
	}
	p.peer, p.qpn = peer.AH, peer.QPN
	if err := p.send(); err != nil {
		return err
	}
	return p.wait(ctx, p.Count, p.Count)
}

// resolve asks a server that may not listen yet.
func resolve(ctx context.Context, cm verbs.CM, addr netip.AddrPort) (verbs.DatagramPeer, error) {
	for {
		peer, err := cm.Resolve(addr, nil, cmTimeout)
		if !errors.Is(err, verbs.ErrRejected) {
			return peer, err
		}
		select {
		case <-ctx.Done():
			return peer, fmt.Errorf("nobody listens: %w", err)
		case <-time.After(retryPause):
		}
	}
}

// answer is the server.
func (p *postman) answer(ctx context.Context, cm verbs.CM) error {
	listener, err := listen(cm, p.Addr, verbs.PortSpaceUDP, 1, p.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	request, err := nextRequest(ctx, listener)
	if err != nil {
		return err
	}
	if _, err := request.Accept(p.qp, verbs.ConnParam{}, cmTimeout); err != nil {
		return fmt.Errorf("answering %v: %w", request.Remote(), err)
	}
	if err := p.wait(ctx, 0, p.Count); err != nil {
		return err
	}
	if got, want := p.peer.GRH.DGID.Addr(), request.Remote().Addr(); got != want {
		return fmt.Errorf("asked by %v, written to by %v", want, got)
	}
	if err := p.send(); err != nil {
		return err
	}
	return p.wait(ctx, p.Count, p.Count)
}
