package model

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestUCSenderPackets(t *testing.T) {
	remote := verbs.Remote{Addr: 0x1000, RKey: 2}
	for _, c := range []struct {
		service ib.Transport
		op      verbs.WROpcode
		n       int
		want    string // the packets
		next    ib.PSN
	}{
		{ib.UC, verbs.OpSend, 0, "[UC SEND_ONLY psn 16777215]", 0},
		{ib.UC, verbs.OpSendImm, 257, "[UC SEND_FIRST psn 16777215 256 B UC SEND_LAST_IMM psn 0 imm 0x7 SE 1 B]", 1},
		{ib.UC, verbs.OpRDMAWrite, 257, "[UC WRITE_FIRST psn 16777215 va 0x1000 rkey 0x2 len 257 256 B UC WRITE_LAST psn 0 1 B]", 1},
		{ib.XRC, verbs.OpRDMARead, 600, "[XRC READ_REQUEST psn 16777215 srq 0x5 va 0x1000 rkey 0x2 len 600]", 2},
	} {
		s := &UCSender{Service: c.service, Peer: 3, MTU: 256, PSN: 0xffffff, PKey: 0xffff}
		wr := verbs.SendWR{Opcode: c.op, Imm: 7, Remote: remote, XRC: verbs.XRC{SRQN: 5}}
		if c.op == verbs.OpSendImm {
			wr.Flags = verbs.SendSolicited
		}
		got := fmt.Sprint(s.Send(UCRequest{WR: wr, Payload: make([]byte, c.n)}))
		if got != c.want || s.PSN != c.next {
			t.Errorf("%v: %v, then PSN %d; want %v, then %d", c.op, got, s.PSN, c.want, c.next)
		}
	}
}
