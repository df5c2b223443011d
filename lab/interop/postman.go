package interop

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// postman is our end of a udaddy.
type postman struct {
	Datagrams
	gidIndex int
	pd       verbs.PD
	comp     *completions
	qp       verbs.QP
	closers

	sendBuf, recvBuf []byte
	sendMR, recvMR   verbs.MR

	peer           verbs.AHAttr // of the server, or of who wrote to it first
	qpn            verbs.QPN
	sent, received int

	// compose writes what is sent, inspect looks at the data received.
	compose func([]byte)
	inspect func([]byte) error
}

func newPostman(d Datagrams, dev verbs.Context) (_ *postman, err error) {
	p := &postman{
		Datagrams: d,
		sendBuf:   make([]byte, d.Size),
		recvBuf:   make([]byte, d.Count*(verbs.GRHLen+d.Size)),
	}
	p.compose = numbered(0).fill
	p.inspect = p.checkReply
	if d.Role == Server {
		p.inspect = func([]byte) error { return nil } // whatever the client's memory held
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.gidIndex, err = FindGID(dev, verbs.GIDFrom(d.Local)); err != nil {
		return nil, err
	}
	if p.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.pd)
	if p.comp, err = newCompletions(dev, 2*d.Count, d.Events); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, closerFunc(p.comp.close))
	if p.sendMR, err = p.pd.RegMR(verbs.MRInit{Buf: p.sendBuf}); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.sendMR)
	if p.recvMR, err = p.pd.RegMR(verbs.MRInit{Buf: p.recvBuf, Access: verbs.AccessLocalWrite}); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.recvMR)
	p.qp, err = dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: p.pd, SendCQ: p.comp.cq, RecvCQ: p.comp.cq,
		Caps: verbs.QPCaps{MaxSendWR: d.Count, MaxRecvWR: d.Count, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.qp)
	return p, p.start()
}

// start posts all receives and makes the queue pair ready.
func (p *postman) start() error {
	for _, step := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, QKey: cmQKey}, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, 0},
		{verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: startPSN}, verbs.QPAttrSQPSN},
	} {
		if err := p.qp.Modify(step.attr, step.mask|verbs.QPAttrState); err != nil {
			return err
		}
	}
	slot := verbs.GRHLen + p.Size
	for i := range p.Count {
		wr := verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{verbs.SGEOf(p.recvMR, i*slot, slot)}}
		if _, err := p.qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
			return err
		}
	}
	return nil
}

// send posts all datagrams. They are alike, since udaddy keeps only its last.
func (p *postman) send() error {
	ah, err := p.pd.CreateAH(p.peer)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, ah)
	p.compose(p.sendBuf)
	for range p.Count {
		_, err := p.qp.PostSend([]verbs.SendWR{{
			WRID: sendWRID, Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, Imm: uint32(p.qp.QPN()),
			SGL: []verbs.SGE{verbs.SGEOf(p.sendMR, 0, p.Size)},
			UD:  verbs.UD{AH: ah, QPN: p.qpn, QKey: cmQKey},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits until so many datagrams have been sent and received.
func (p *postman) wait(ctx context.Context, sent, received int) error {
	for p.sent < sent || p.received < received {
		wcs, err := p.comp.next(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			wc := &wcs[i]
			switch {
			case wc.Status != verbs.WCSuccess:
				return fmt.Errorf("%v (vendor error %#x) for work request %#x", wc.Status, wc.VendorErr, wc.WRID)
			case wc.WRID == sendWRID && wc.Opcode == verbs.WCOpSend:
				p.sent++
			case wc.WRID == uint64(p.received) && wc.Opcode == verbs.WCOpRecv: // receives are used in order
				if err := p.open(wc); err != nil {
					return fmt.Errorf("datagram %d: %w", p.received, err)
				}
				p.received++
			default:
				return fmt.Errorf("unexpected completion %+v", *wc)
			}
		}
	}
	return nil
}

// open checks one datagram: its length, its sender and its data.
func (p *postman) open(wc *verbs.WC) error {
	slot := p.recvBuf[int(wc.WRID)*(verbs.GRHLen+p.Size):][:verbs.GRHLen+p.Size]
	area, body := slot[:verbs.GRHLen], slot[verbs.GRHLen:]
	if int(wc.ByteLen) != len(slot) {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, len(slot))
	}
	from, err := verbs.InitAHFromWC(devicePort, uint8(p.gidIndex), wc, area)
	if err != nil {
		return err
	}
	if p.qpn == 0 { // we serve, and this is our client
		p.peer, p.qpn = from, wc.SrcQP
	}
	if from.GRH.DGID != p.peer.GRH.DGID || wc.SrcQP != p.qpn {
		return fmt.Errorf("from queue pair %#x at %v, want %#x at %v", uint32(wc.SrcQP), from.GRH.DGID, uint32(p.qpn), p.peer.GRH.DGID)
	}
	if wc.Flags&verbs.WCWithImm == 0 || wc.Imm != uint32(p.qpn) {
		return fmt.Errorf("immediate data %#x (flags %#x), want the sender's number %#x", wc.Imm, uint32(wc.Flags), uint32(p.qpn))
	}
	return p.inspect(body)
}

// checkReply checks what udaddy's server returns: its whole receive buffer from
// the start, which begins with the header that our datagram arrived with.
func (p *postman) checkReply(body []byte) error {
	header, data := body[:verbs.GRHLen], body[verbs.GRHLen:]
	seen, err := verbs.InitAHFromWC(devicePort, 0, &verbs.WC{Flags: verbs.WCWithGRH}, header)
	if err != nil {
		return fmt.Errorf("the header that our datagram had there: %w", err)
	}
	if seen.GRH.DGID != verbs.GIDFrom(p.Local) {
		return fmt.Errorf("our datagrams arrive as from %v, want %v", seen.GRH.DGID, p.Local)
	}
	return check(data, numbered(0))
}
