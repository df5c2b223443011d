package providertest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

const echoPort = 7174

// Echo are two programs: a client sends messages of different lengths over one connection,
// and a server returns them.
type Echo struct {
	Client, Server verbs.Context
	To             netip.Addr // of the server
	Messages       int
	// Ahead is the number of receives that the server posts before it accepts. With 0 it
	// posts one when it waits, which needs a transport that retries.
	Ahead int
	// Start is when the client starts in a simulated world.
	Start time.Duration
}

// InWorld starts the programs in a simulated world.
func (x Echo) InWorld(t testing.TB, w *sim.World) {
	w.Go("server", func(*sim.Proc) error { return x.serve(t, func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(x.Start)
		return x.request(t)
	})
}

// Run runs the programs in real time.
func (x Echo) Run(t testing.TB) error {
	errs := make(chan error, 2)
	listening := make(chan struct{})
	go func() { errs <- x.serve(t, func() { close(listening) }) }()
	select {
	case <-listening:
	case err := <-errs:
		return err
	}
	go func() { errs <- x.request(t) }()
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// serve accepts one connection and returns its messages. It calls listening when a client
// may connect.
func (x Echo) serve(t testing.TB, listening func()) error {
	e := NewEnd(t, x.Server, verbs.QPTypeRC)
	for range x.Ahead {
		if err := e.receive(0); err != nil {
			return err
		}
	}
	l := Listen(t, x.Server, netip.AddrPortFrom(x.To, echoPort), 1)
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return err
	}
	if got := string(bytes.TrimRight(req.Param().PrivateData, "\x00")); got != "hello" {
		return fmt.Errorf("private data %q", got)
	}
	conn, err := req.Accept(e.QP, ConnParam, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range x.Messages {
		if x.Ahead == 0 {
			if err := e.receive(0); err != nil {
				return err
			}
		}
		wc, err := e.succeeded()
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		if err := e.request(verbs.SendSignaled, int(wc.ByteLen)); err != nil {
			return err
		}
		if _, err := e.succeeded(); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		if x.Ahead > 0 {
			if err := e.receive(0); err != nil {
				return err
			}
		}
	}
	return conn.WaitDisconnect(verbs.Forever)
}

func (x Echo) request(t testing.TB) error {
	e := NewEnd(t, x.Client, verbs.QPTypeRC)
	param := ConnParam
	param.PrivateData = []byte("hello")
	conn, err := CM(t, x.Client).Connect(e.QP, netip.AddrPortFrom(x.To, echoPort), param, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range x.Messages {
		size := 1 + i*97%8000
		for k := range size {
			e.Buf[k] = byte(k + i)
		}
		if err := errors.Join(e.receive(10_000), e.request(0, size)); err != nil {
			return err
		}
		wc, err := e.succeeded()
		if err != nil || int(wc.ByteLen) != size {
			return fmt.Errorf("echo %d: %d bytes, %w", i, wc.ByteLen, err)
		}
		if !bytes.Equal(e.Buf[:size], e.Buf[10_000:10_000+size]) {
			return fmt.Errorf("echo %d differs", i)
		}
	}
	if err := conn.Disconnect(); err != nil {
		return err
	}
	return conn.WaitDisconnect(verbs.Forever)
}

// succeeded returns a completion, or why it is no success: a device with a defect may fail.
func (e *End) succeeded() (verbs.WC, error) {
	var wc [1]verbs.WC
	if _, err := e.NextWC(true, wc[:], 30*time.Second); err != nil {
		return wc[0], err
	}
	return wc[0], failure(&wc[0])
}

func (e *End) receive(off int) error {
	_, err := e.QP.PostRecv([]verbs.RecvWR{{SGL: e.SGL(off, 8192)}})
	return err
}

func (e *End) request(flags verbs.SendFlags, n int) error {
	return e.TryPost(verbs.SendWR{Opcode: verbs.OpSend, Flags: flags, SGL: e.SGL(0, n)})
}
