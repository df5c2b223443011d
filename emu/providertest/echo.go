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
	// Preposted is the number of receives that the server posts before it accepts. With 0 it
	// posts each receive when it waits for a message, which needs a transport that retries.
	Preposted int
	// Start is when the client starts in a simulated world.
	Start time.Duration
}

// InWorld starts the server, and at echo.Start the client, in w. The caller runs the world.
func (echo Echo) InWorld(t testing.TB, w *sim.World) {
	onListening := func() {}
	w.Go("server", func(*sim.Proc) error { return echo.serve(t, onListening) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(echo.Start)
		return echo.sendAll(t)
	})
}

// Run runs the server and the client in real time, and returns the first error.
func (echo Echo) Run(t testing.TB) error {
	errs := make(chan error, 2)
	listening := make(chan struct{})
	go func() { errs <- echo.serve(t, func() { close(listening) }) }()
	select {
	case <-listening:
	case err := <-errs:
		return err
	}
	go func() { errs <- echo.sendAll(t) }()
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// serve listens, calls listening, accepts one connection, sends every message back, and waits for
// the client to disconnect. It posts echo.Preposted receives before it listens, and one more after
// each message; if echo.Preposted is 0, one before each message.
func (echo Echo) serve(t testing.TB, listening func()) error {
	e := NewEnd(t, echo.Server, verbs.QPTypeRC)
	for range echo.Preposted {
		if err := e.postRecv(0); err != nil {
			return err
		}
	}
	l := Listen(t, echo.Server, netip.AddrPortFrom(echo.To, echoPort), 1) // 1: the backlog
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return err
	}
	if got := string(bytes.TrimRight(req.Param().PrivateData, "\x00")); got != "hello" {
		return fmt.Errorf("private data %q, want \"hello\"", got)
	}
	conn, err := req.Accept(e.QP, ConnParam, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range echo.Messages {
		if echo.Preposted == 0 {
			if err := e.postRecv(0); err != nil {
				return err
			}
		}
		wc, err := e.awaitSuccess()
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		if err := e.postSend(verbs.SendSignaled, int(wc.ByteLen)); err != nil {
			return err
		}
		if _, err := e.awaitSuccess(); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		if echo.Preposted > 0 {
			if err := e.postRecv(0); err != nil {
				return err
			}
		}
	}
	return conn.WaitDisconnect(verbs.Forever)
}

// sendAll connects to the server, sends the messages one by one, checks that each comes back
// unchanged, and disconnects.
func (echo Echo) sendAll(t testing.TB) error {
	const recvOffset = 10_000 // messages are shorter
	e := NewEnd(t, echo.Client, verbs.QPTypeRC)
	param := ConnParam
	param.PrivateData = []byte("hello")
	conn, err := CM(t, echo.Client).Connect(e.QP, netip.AddrPortFrom(echo.To, echoPort), param, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range echo.Messages {
		size := 1 + i*97%8000 // varies from 1 to 8000 bytes
		for k := range size {
			e.Buf[k] = byte(k + i)
		}
		if err := errors.Join(e.postRecv(recvOffset), e.postSend(0, size)); err != nil { // unsignaled: its echo shows that it arrived
			return err
		}
		wc, err := e.awaitSuccess()
		if err != nil {
			return fmt.Errorf("echo %d: %w", i, err)
		}
		if int(wc.ByteLen) != size {
			return fmt.Errorf("echo %d has %d bytes, not %d", i, wc.ByteLen, size)
		}
		if !bytes.Equal(e.Buf[:size], e.Buf[recvOffset:recvOffset+size]) {
			return fmt.Errorf("echo %d differs", i)
		}
	}
	if err := conn.Disconnect(); err != nil {
		return err
	}
	return conn.WaitDisconnect(verbs.Forever)
}

// awaitSuccess waits for one completion. Unlike AwaitSuccess it does not end the test if the
// request failed, but returns an error, because the device may have a defect on purpose.
func (e *End) awaitSuccess() (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := e.NextWC(block, wc[:], 30*time.Second)
	if err == nil && wc[0].Status != verbs.WCSuccess {
		err = fmt.Errorf("%v completed with %v, vendor error %#x", wc[0].Opcode, wc[0].Status, wc[0].VendorErr)
	}
	return wc[0], err
}

// postRecv posts a receive of up to 8 KiB at an offset of the end's memory.
func (e *End) postRecv(off int) error {
	_, err := e.QP.PostRecv([]verbs.RecvWR{{SGL: e.SGL(off, 8192)}})
	return err
}

// postSend posts a send of the first n bytes of the end's memory.
func (e *End) postSend(flags verbs.SendFlags, n int) error {
	return e.TryPost(verbs.SendWR{Opcode: verbs.OpSend, Flags: flags, SGL: e.SGL(0, n)})
}
