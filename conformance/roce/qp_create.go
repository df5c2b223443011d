package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var qpCreateCases = conformance.Group{DefaultLabels: labelRC}.Cases([]conformance.Case{{
	ID: "qp/create/unknown-type-refused", Cite: ibta("", "roce/qp/1"), Needs: verbs.CapRC,
	Run: rig.Body(func(r *rig.Rig) {
		for _, kind := range []verbs.QPType{0, 5, 11, 77} {
			_, err := r.Device.CreateQP(qpInit(r, kind, minQPCaps))
			r.MustFail(fmt.Sprintf("a queue pair of type %d", kind), err, nil)
		}
	}),
}, {
	ID: "qp/create/deeper-than-the-device-refused", Cite: ibta("", "roce/qp/1"), Needs: verbs.CapRC,
	Run: rig.Body(func(r *rig.Rig) {
		attr := r.QueryDevice()
		for _, more := range []struct {
			what string
			caps verbs.QPCaps
		}{
			{"sends", verbs.QPCaps{MaxSendWR: attr.MaxQPWR + 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}},
			{"receives", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: attr.MaxQPWR + 1, MaxSendSGE: 1, MaxRecvSGE: 1}},
			{"entries a send", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: attr.MaxSGE + 1, MaxRecvSGE: 1}},
			{"entries a receive", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: attr.MaxSGE + 1}},
		} {
			_, err := r.Device.CreateQP(qpInit(r, verbs.QPTypeRC, more.caps))
			r.MustFail("a queue pair with more "+more.what+" than the device claims", err, nil)
		}
		_, err := r.Device.CreateQP(qpInit(r, verbs.QPTypeRC, verbs.QPCaps{MaxSendWR: attr.MaxQPWR, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}))
		if errors.Is(err, verbs.ErrNoMemory) {
			// The host may have less memory than the device's limits need.
			r.Note("the device's host has no memory for a queue pair with %d sends", attr.MaxQPWR)
			return
		}
		r.Must("a queue pair with as many sends as the device claims", err)
	}),
}, {
	ID: "qp/create/as-many-as-claimed", Cite: ibta("", "roce/qp/1"), Level: conformance.Should, Needs: verbs.CapUD,
	Labels: []string{"service:ud", conformance.Slow},
	Run: OnPort(func(p *Port) {
		attr := p.QueryDevice()
		const patience = 1 << 17
		if attr.MaxAH <= 0 || attr.MaxAH > patience {
			rig.Abort(fmt.Errorf("the device claims %d address handles, and at most %d are tried: %w", attr.MaxAH, patience, conformance.ErrBenchCannot))
		}
		path := p.peerAttr(p.Peer).AH
		for i := range attr.MaxAH {
			_, err := p.PD.CreateAH(path)
			p.Must(fmt.Sprintf("address handle %d of %d", i+1, attr.MaxAH), err)
		}
	}),
}})

// minQPCaps are capacities that every device supports.
var minQPCaps = verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

// freshQP returns an RC queue pair in RESET.
func (p *Port) freshQP() verbs.QP {
	qp, err := p.Device.CreateQP(qpInit(p.Rig, verbs.QPTypeRC, minQPCaps))
	p.Must("a queue pair", err)
	return qp
}

func qpInit(r *rig.Rig, kind verbs.QPType, caps verbs.QPCaps) verbs.QPInit {
	return verbs.QPInit{Type: kind, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: caps}
}
