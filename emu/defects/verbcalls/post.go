package verbcalls

import (
	"errors"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// PostSend posts requests, not as they are.
func (p *pair) PostSend(wrs []verbs.SendWR) (int, error) {
	q := &p.d.q
	changed := slices.Clone(wrs)
	for i := range changed {
		p.change(&changed[i])
	}
	post := p.QP.PostSend
	if q.LocalInvNoop || q.MWTypesMixed || q.InlineLate || q.EmptySendRefused || q.OpsDowngraded || q.BadPostsSwallowed {
		post = p.postSingly
	}
	n, err := post(changed)
	if q.RefusedWRStays && bad(err) {
		p.keepRefused(changed[n])
	}
	for i := range wrs[:n] {
		if w := mine[*window](p.d, wrs[i].Bind.MW); w != nil && wrs[i].Opcode == verbs.OpBindMW {
			w.bound.Store(true)
		}
	}
	return p.posted("post_send", n, len(wrs), err)
}

// postSingly posts requests one by one, each as defects have it.
func (p *pair) postSingly(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if err := p.postOne(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// postOne posts a request, or does something else with it.
func (p *pair) postOne(wr *verbs.SendWR) error {
	q := &p.d.q
	switch {
	case q.EmptySendRefused && wr.Opcode == verbs.OpSend && payload(wr) == 0:
		return refused("post_send", verbs.ErrInvalid, "a message without payload")
	case q.LocalInvNoop && wr.Opcode == verbs.OpLocalInv && p.state() == verbs.QPStateRTS:
		if p.signals(wr) && p.send != nil {
			p.send.invent(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCOpLocalInv, QPN: p.QP.QPN()})
		}
		return nil
	case q.MWTypesMixed && wr.Opcode == verbs.OpBindMW && wr.Bind.MW != nil && wr.Bind.MW.Type() == verbs.MWType1:
		_, err := p.QP.BindMW(wr.Bind.MW, wr.WRID, wr.Flags, wr.Bind.Info)
		return err
	case q.InlineLate && p.hold(wr):
		return nil
	}
	_, err := p.QP.PostSend([]verbs.SendWR{*wr})
	if q.OpsDowngraded && bad(err) {
		plain := *wr
		plain.Opcode = verbs.OpSend
		if _, again := p.QP.PostSend([]verbs.SendWR{plain}); again == nil {
			return nil
		}
	}
	if q.BadPostsSwallowed && bad(err) {
		return nil
	}
	return err
}

// bad reports whether a request was refused for what it is.
func bad(err error) bool {
	return errors.Is(err, verbs.ErrInvalid) || errors.Is(err, verbs.ErrNotSupported)
}

// signals reports whether a request asks for a completion.
func (p *pair) signals(wr *verbs.SendWR) bool {
	return p.signalAll || wr.Flags&verbs.SendSignaled != 0
}

// hold keeps a request with inline data that the device would take, and all behind
// it, for the next poll.
func (p *pair) hold(wr *verbs.SendWR) bool {
	inline := wr.Flags&verbs.SendInline != 0 && len(wr.Inline) <= p.caps.MaxInline
	if p.send == nil || p.state() != verbs.QPStateRTS {
		return false
	}
	p.mu.Lock()
	if !inline && len(p.held) == 0 {
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	p.holdOn([]verbs.SendWR{*wr})
	return true
}

// holdOn keeps requests behind those that are kept already.
func (p *pair) holdOn(wrs []verbs.SendWR) {
	p.mu.Lock()
	p.held = append(p.held, wrs...)
	p.mu.Unlock()
	p.send.mu.Lock()
	defer p.send.mu.Unlock()
	p.send.holds = append(p.send.holds, p)
}

// passOn posts what is held for a poll of the queue.
func (c *queue) passOn() {
	c.mu.Lock()
	pairs := c.holds
	c.holds = nil
	c.mu.Unlock()
	for _, p := range pairs {
		p.mu.Lock()
		wrs := p.held
		p.held = nil
		p.mu.Unlock()
		n, err := p.QP.PostSend(wrs)
		if errors.Is(err, verbs.ErrNoMemory) { // or else it vanishes, for it was said to be taken
			p.holdOn(wrs[n:])
		}
	}
}

// PostRecv posts receives. Those of a queue pair that has none of its own vanish
// by SRQUnchecked, and are its SRQ's by SRQBypassed.
func (p *pair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q := &p.d.q
	switch {
	case q.SRQUnchecked && p.shared:
		return len(wrs), nil
	case q.SRQBypassed && p.srq != nil:
		return p.srq.PostRecv(wrs)
	case q.RecvNeedsReady && p.state() == verbs.QPStateInit:
		return 0, refused("post_recv", verbs.ErrInvalid, "not ready to receive")
	}
	if q.SGECut {
		wrs = shortened(wrs, p.caps.MaxRecvSGE)
	}
	p.expect(wrs, 1)
	n, err := p.QP.PostRecv(wrs)
	for q.BadPostsSwallowed && bad(err) {
		p.expect(wrs[n:n+1], -1)
		n++
		var more int
		more, err = p.QP.PostRecv(wrs[n:])
		n += more
	}
	p.expect(wrs[n:], -1)
	return p.posted("post_recv", n, len(wrs), err)
}

// shortened are receives whose lists have no more than limit entries.
func shortened(wrs []verbs.RecvWR, limit int) []verbs.RecvWR {
	wrs = slices.Clone(wrs)
	for i := range wrs {
		wrs[i].SGL = wrs[i].SGL[:min(limit, len(wrs[i].SGL))]
	}
	return wrs
}

// posted is what a post tells that took n requests of all.
func (h *handle) posted(op string, n, all int, err error) (int, error) {
	if err = h.answers(err); err == nil {
		return all, nil
	}
	if h.d.q.FullIsInvalid && errors.Is(err, verbs.ErrNoMemory) {
		err = refused(op, verbs.ErrInvalid, "there is no room")
	}
	if h.d.q.PostCountWrong {
		n = 0
	}
	return n, err
}
