package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/verbs"
)

// phone is a queue pair for one call, with what it needs: the first half of
// its memory is sent from, the other received into.
type phone struct {
	end     *callEnd
	qp      verbs.QP
	pd      verbs.PD
	cq      verbs.CQ
	channel verbs.CompChannel
	buf     []byte
	mr      verbs.MR
	closers []io.Closer // in order of making
}

const heardAt = maxCallBytes

// newPhone makes a queue pair that is ready to receive the messages of a call
// before it is connected: then no message comes too early.
func newPhone(e *callEnd) (*phone, error) {
	p, err := openPhone(e, verbs.QPTypeRC)
	if err != nil {
		return nil, err
	}
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1}
	if err := p.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return nil, err
	}
	// Ends take turns, so that one place is enough for what is heard.
	wrs := make([]verbs.RecvWR, messagesPerCall)
	for i := range wrs {
		wrs[i].SGL = []verbs.SGE{verbs.SGEOf(p.mr, heardAt, maxCallBytes)}
	}
	_, err = p.qp.PostRecv(wrs)
	return p, err
}

// newDatagramPhone makes a queue pair to be looked up.
func newDatagramPhone(e *callEnd) (*phone, error) {
	p, err := openPhone(e, verbs.QPTypeUD)
	if err != nil {
		return nil, err
	}
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: lookupQKey}
	return p, p.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey)
}

func openPhone(e *callEnd, typ verbs.QPType) (p *phone, err error) {
	p = &phone{end: e, buf: make([]byte, 2*maxCallBytes)}
	if p.pd, err = e.dev.AllocPD(); err != nil {
		return nil, err
	}
	if p.channel, err = e.dev.CreateCompChannel(); err != nil {
		return nil, err
	}
	if p.cq, err = e.dev.CreateCQ(verbs.CQInit{Depth: 4 * messagesPerCall, Channel: p.channel}); err != nil {
		return nil, err
	}
	if p.mr, err = p.pd.RegMR(verbs.MRInit{Buf: p.buf, Access: verbs.AccessLocalWrite}); err != nil {
		return nil, err
	}
	p.qp, err = e.dev.CreateQP(verbs.QPInit{
		Type: typ, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: messagesPerCall, MaxRecvWR: messagesPerCall, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.closers = []io.Closer{p.pd, p.channel, p.cq, p.mr, p.qp}
	return p, err
}

func (p *phone) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i].Close())
	}
	return errors.Join(errs...)
}

// say sends message k of call i. It asks for no completion: that of the last
// message may be cut off by the other end hanging up. The answer proves that
// the message came, and its place may be used again then.
func (p *phone) say(i, k int) error {
	n := p.end.fill(p.buf[:maxCallBytes], p.end.side, i, k)
	_, err := p.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(p.mr, 0, n)}}})
	return err
}

// hear receives message k of call i and checks every byte.
func (p *phone) hear(i, k int) error {
	wc, err := p.complete()
	if err != nil {
		return err
	}
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("%v ended with %v", wc.Opcode, wc.Status)
	}
	want := make([]byte, maxCallBytes)
	want = want[:p.end.fill(want, 1-p.end.side, i, k)]
	if got := p.buf[heardAt : heardAt+int(wc.ByteLen)]; !bytes.Equal(got, want) {
		return fmt.Errorf("received %d bytes that are not the %d sent", len(got), len(want))
	}
	p.end.done.delivered++
	p.end.done.bytes += int64(len(want))
	return nil
}

// complete waits by event for one completion.
func (p *phone) complete() (wc verbs.WC, err error) {
	var one [1]verbs.WC
	for {
		if n, err := p.cq.Poll(one[:]); err != nil || n == 1 {
			return one[0], err
		}
		if err := p.cq.Arm(false); err != nil {
			return wc, err
		}
		if n, err := p.cq.Poll(one[:]); err != nil || n == 1 {
			return one[0], err
		}
		if _, err := p.channel.Wait(verbs.Forever); err != nil {
			return wc, err
		}
	}
}

// fill makes up what a side says in message k of call i and returns its length.
func (e *callEnd) fill(b []byte, side uint64, i, k int) int {
	x := e.seed ^ side<<63 ^ uint64(i)<<8 ^ uint64(k)
	n := int(mix(x) % uint64(len(b)+1))
	for at := 0; at < n; at++ {
		b[at] = byte(mix(x + uint64(at) + 1))
	}
	return n
}

// mix spreads the bits of x (the finish of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
