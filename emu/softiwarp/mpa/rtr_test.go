package mpa

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// withRTR returns enhanced data of the peer-to-peer model.
func withRTR(r RTR, ird uint16) wire.Enhanced { return enhancedData(true, r, ird, ird) }

// rtrRows test the peer-to-peer model.
var rtrRows = map[string]func(*testing.T){
	"rfc6581/9.2/1": func(t *testing.T) {
		for r := RTR(0); r <= rtrAll; r++ {
			e := depthsOf(t, parse(t, written(NewInitiator(0, Config{PeerToPeer: true, RTR: r}))))
			want := r
			if r == 0 {
				want = rtrAll
			}
			if !e.PeerToPeer || rtrOf(&e) != want {
				t.Errorf("%v: Request %+v", r, e)
			}
		}
	},
	"rfc6581/9.2/2": func(t *testing.T) {
		for own := RTR(0); own <= rtrAll; own++ {
			for requested := RTR(0); requested <= rtrAll; requested++ {
				if _, e := replies(t, Config{RTR: own}, withRTR(requested, 1), AcceptParam{}); rtrOf(&e) == 0 {
					t.Errorf("%v requested from %v: none offered", requested, own)
				}
			}
		}
	},
	"rfc6581/9.2/3": func(t *testing.T) {
		c, e := replies(t, Config{}, withRTR(RTRWrite, 1), AcceptParam{})
		if p := c.Params(); !e.PeerToPeer || !p.PeerToPeer || p.RTR != RTRWrite {
			t.Errorf("Reply %+v, negotiated %+v", e, p)
		}
	},
	"rfc6581/9.2/4": func(t *testing.T) {
		for own := RTR(1); own <= rtrAll; own++ {
			for requested := RTR(1); requested <= rtrAll; requested++ {
				if _, e := replies(t, Config{RTR: own}, withRTR(requested, 1), AcceptParam{}); own&requested != 0 && rtrOf(&e) != own&requested {
					t.Errorf("%v requested from %v: offers %v", requested, own, rtrOf(&e))
				}
			}
		}
	},
	"rfc6581/9.2/5": func(t *testing.T) {
		for own := RTR(1); own < rtrAll; own++ {
			if _, e := replies(t, Config{RTR: own}, withRTR(rtrAll&^own, 1), AcceptParam{}); rtrOf(&e) != own {
				t.Errorf("%v offers %v", own, rtrOf(&e))
			}
		}
	},
	"rfc6581/9.2/6": func(t *testing.T) {
		for own := RTR(1); own <= rtrAll; own++ {
			for offered := RTR(1); offered <= rtrAll; offered++ {
				if own&offered == 0 {
					continue
				}
				p := accepted(t, Config{PeerToPeer: true, RTR: own, MaxIRD: 1}, enhance(reply(), withRTR(offered, 1))).Params()
				if !p.PeerToPeer || p.RTR&own&offered != p.RTR || (p.RTR != RTRSend && p.RTR != RTRWrite && p.RTR != RTRRead) {
					t.Errorf("%v of %v: sends %v", own, offered, p.RTR)
				}
			}
		}
		// A read beyond the responder's IRD would fail.
		p := accepted(t, Config{PeerToPeer: true}, enhance(reply(), withRTR(RTRSend|RTRRead, 0))).Params()
		if p.RTR != RTRSend {
			t.Errorf("with no room for reads: sends %v", p.RTR)
		}
	},
	"rfc6581/9.2/7": func(t *testing.T) {
		for own := RTR(1); own <= rtrAll; own++ {
			for offered := RTR(0); offered <= rtrAll; offered++ {
				if own&offered != 0 {
					continue
				}
				c, e := initiates(t, Config{PeerToPeer: true, RTR: own, MaxIRD: 1}, enhance(reply(), withRTR(offered, 1)))
				failsWith(t, e, wire.TermMPANoRTR, ErrNoRTR)
				if b := sent(c, pattern(22, 0)); !bytes.Equal(b, stream(crcOn, pattern(22, 0))) || c.MaySend() {
					t.Errorf("the Terminate is %x", b)
				}
			}
		}
		_, e := initiates(t, Config{PeerToPeer: true}, enhance(reply(), withRTR(RTRRead, 0)))
		failsWith(t, e, wire.TermMPANoRTR, ErrNoRTR)
		_, e = initiates(t, Config{PeerToPeer: true}, enhance(reply(), wire.Enhanced{RTRWrite: true}))
		failsWith(t, e, wire.TermMPANoRTR, ErrModel)
	},
	"rfc6581/9.2/8": func(t *testing.T) {
		if e := depthsOf(t, parse(t, written(NewInitiator(0, Config{RTR: rtrAll})))); e != (wire.Enhanced{}) {
			t.Errorf("Request %+v", e)
		}
		if _, e := replies(t, Config{}, wire.Enhanced{}, AcceptParam{}); e != (wire.Enhanced{}) {
			t.Errorf("Reply %+v", e)
		}
	},
	"rfc6581/9.2/9": func(t *testing.T) {
		requested := wire.Enhanced{RTRSend: true, RTRWrite: true, RTRRead: true}
		c, e := replies(t, Config{}, requested, AcceptParam{})
		if p := c.Params(); e != (wire.Enhanced{}) || p.PeerToPeer || p.RTR != 0 {
			t.Errorf("Reply %+v, negotiated %+v", e, p)
		}
		if p := accepted(t, Config{}, enhance(reply(), requested)).Params(); p.PeerToPeer || p.RTR != 0 {
			t.Errorf("negotiated %+v", p)
		}
	},
	"rfc6581/9.2/10": func(t *testing.T) {
		c, _ := replies(t, Config{}, withRTR(RTRWrite, 1), AcceptParam{})
		b := stream(crcOn, pattern(14, 0))
		if give(c, b[:19]); c.MaySend() {
			t.Error("may send before the RTR is complete")
		}
		if give(c, b[19:]); !c.MaySend() {
			t.Error("cannot send after the RTR")
		}
	},
}
