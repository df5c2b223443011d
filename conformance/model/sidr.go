package model

import "github.com/fabrictest/fabrictest/conformance/packet/ib"

// SIDRRequest is the model of a SIDR_REQ of the peer.
type SIDRRequest struct {
	Request ib.SIDRREQ
	// Reply is the answer of the application; nil before it.
	Reply *ib.SIDRREP
	// MayRepeat: a duplicate arrived after the answer. The device may treat it as a new request.
	MayRepeat bool
}

// ReceiveDuplicate returns the response to a duplicate of the request: the device may repeat its
// reply, if it has sent one.
func (q *SIDRRequest) ReceiveDuplicate() CMReply {
	if q.Reply == nil {
		return CMReply{}
	}
	q.MayRepeat = true
	return CMReply{May: []ib.Message{*q.Reply}}
}

// SIDRResolve is the model of a SIDR_REQ of the device.
type SIDRResolve struct {
	ID    uint32
	Reply *ib.SIDRREP // the answer of the peer; nil while the device waits for it
}

// Receive notes a SIDR_REP of the peer. The device ignores one with another ID, and a second one.
func (q *SIDRResolve) Receive(rep ib.SIDRREP) {
	if q.Reply == nil && *rep.RequestID == q.ID {
		q.Reply = &rep
	}
}
