package dgiwarp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// end is a queue pair with its memory. The first half of the memory is for sends and remote
// access, the second half for receives.
type end struct {
	*providertest.End
	dev *Device
	ahs map[netip.AddrPort]verbs.AH
}

const (
	endBytes = 1 << 18
	recvAt   = endBytes / 2
)

const fullAccess = providertest.FullAccess

var counter = providertest.Counter

// newEnd creates a queue pair and moves it to RTS.
func newEnd(t testing.TB, d *Device, opt QPOptions) *end {
	t.Helper()
	e := &end{providertest.NewObjects(t, d, endBytes), d, map[netip.AddrPort]verbs.AH{}}
	in := e.QPInit(verbs.QPTypeUD)
	in.Caps.MaxRecvWR = 1024
	must.Do(t, e.CQ.Resize(2048))
	e.QP = must.Get(d.CreateQPWith(in, opt))(t)
	e.ReadyUD(testKey)
	return e
}

// source is the address of the end for peers.
func (e *end) source() Source {
	return Source{netip.AddrPortFrom(e.dev.cfg.Addrs[0], e.dev.nic.Config().Port), e.QP.QPN()}
}

// tryPost posts a signaled request to a peer, which may fail.
func (e *end) tryPost(to Source, wr verbs.SendWR) error {
	ah, ok := e.ahs[to.Addr]
	if !ok {
		var err error
		if ah, err = e.PD.CreateAH(AddressOf(to.Addr)); err != nil {
			return err
		}
		e.ahs[to.Addr] = ah
	}
	wr.UD = verbs.UD{AH: ah, QPN: to.QPN, QKey: testKey}
	wr.Flags |= verbs.SendSignaled
	return e.TryPost(wr)
}

// trySend sends n bytes of the end's memory from off on, which may fail.
func (e *end) trySend(to Source, off, n int) error {
	return e.tryPost(to, verbs.SendWR{WRID: sendID, Opcode: verbs.OpSend, SGL: e.SGL(off, n)})
}

// sendID is the WRID of sends. The WRID of a receive is the offset of its memory.
const sendID = 1 << 40

func (e *end) send(to Source, off, n int) {
	e.Helper()
	must.Do(e, e.trySend(to, off, n))
}

// do posts a request and waits for it to succeed.
func (e *end) do(to Source, wr verbs.SendWR) {
	e.Helper()
	must.Do(e, e.tryPost(to, wr))
	e.AwaitSuccess()
}

// tryRecv posts a receive of n bytes after the GRH, off bytes into the memory for receives.
func (e *end) tryRecv(off, n int) error {
	at := recvAt + off
	_, err := e.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(at), SGL: e.SGL(at, verbs.GRHLen+n)}})
	return err
}

func (e *end) recv(off, n int) {
	e.Helper()
	must.Do(e, e.tryRecv(off, n))
}

// message returns a received message and its source.
func (e *end) message(wc *verbs.WC) (Source, []byte) {
	e.Helper()
	from, b, err := e.tryMessage(wc)
	must.Do(e, err)
	return from, b
}

// tryMessage is message for programs of defective devices, which may lose the source.
func (e *end) tryMessage(wc *verbs.WC) (Source, []byte, error) {
	b := e.Buf[wc.WRID:][:wc.ByteLen]
	from, err := SourceOf(wc, b)
	return from, b[verbs.GRHLen:], err
}

// next waits for a completion. It returns an error if none arrives or it failed.
func (e *end) next(timeout time.Duration) (wc verbs.WC, err error) {
	var wcs [1]verbs.WC
	_, err = e.NextWC(true, wcs[:], timeout)
	if wc = wcs[0]; err == nil && wc.Status != verbs.WCSuccess {
		err = fmt.Errorf("%v completed with %v", wc.Opcode, wc.Status)
	}
	return wc, err
}

// expectNoCompletion fails the test if a request completes within d.
func (e *end) expectNoCompletion(d time.Duration) {
	e.Helper()
	var wc [1]verbs.WC
	if n, _ := e.NextWC(true, wc[:], d); n > 0 {
		e.Errorf("unexpected completion of %v with %v", wc[0].Opcode, wc[0].Status)
	}
}
