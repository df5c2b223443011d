package agent

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Arguments and results of calls. On is the object of the call.
type (
	none struct{}

	on[T any] struct{ On T }

	waitOn[T any] struct {
		On      T
		Timeout time.Duration
	}

	made struct{ Handle handle }

	deviceNamed struct{ Device string }
	linkTo      struct {
		Device string
		Up     bool
	}
	addressTo struct {
		Device  string
		Addr    netip.Prefix
		Present bool
	}
	opened struct {
		Handle handle
		Info   verbs.DeviceInfo
	}

	onPort struct {
		On   verbs.Context
		Port uint8
	}
	onEntry struct {
		On    verbs.Context
		Port  uint8
		Index int
	}
	counted struct{ All []verbs.Counter }
	newCQ   struct {
		On   verbs.Context
		Init verbs.CQInit
	}
	newSRQ struct {
		On   verbs.Context
		Init verbs.SRQInit
	}
	madeSRQ struct {
		Handle handle
		Number uint32
	}
	newQP struct {
		On   verbs.Context
		Init verbs.QPInit
	}
	secondQP struct {
		On   verbs.Context
		XRCD verbs.XRCD
		QPN  verbs.QPN
	}
	madeQP struct {
		Handle handle
		QPN    verbs.QPN
		Type   verbs.QPType
	}

	newMR struct {
		On     verbs.PD
		Memory memoryID
		Offset int
		Length int
		Nil    bool
		Addr   uint64
		Access verbs.Access
	}
	madeMR struct {
		Handle handle
		LKey   verbs.LKey
		RKey   verbs.RKey
		Addr   uint64
		Len    int
	}
	newMW struct {
		On   verbs.PD
		Type verbs.MWType
	}
	madeMW struct {
		Handle handle
		Type   verbs.MWType
	}
	newAH struct {
		On   verbs.PD
		Attr verbs.AHAttr
	}
	madeAH struct {
		Handle handle
		Attr   verbs.AHAttr
	}

	eventOf struct{ CQ verbs.CQ }
	pollCQ  struct {
		On  verbs.CQ
		Max int
	}
	polled struct{ WCs []verbs.WC }
	armCQ  struct {
		On            verbs.CQ
		SolicitedOnly bool
	}
	resizeCQ struct {
		On    verbs.CQ
		Depth int
	}
	depth struct{ Depth int }

	receiver interface {
		PostRecv([]verbs.RecvWR) (int, error)
	}
	postRecvs struct {
		On  receiver
		WRs []verbs.RecvWR
	}
	postSends struct {
		On  verbs.QP
		WRs []verbs.SendWR
	}
	posted    struct{ N int }
	changeSRQ struct {
		On   verbs.SRQ
		Attr verbs.SRQAttr
		Mask verbs.SRQAttrMask
	}
	changeQP struct {
		On   verbs.QP
		Attr verbs.QPAttr
		Mask verbs.QPAttrMask
	}
	bindMW struct {
		On    verbs.QP
		MW    verbs.MW
		WRID  uint64
		Flags verbs.SendFlags
		Info  verbs.BindInfo
	}
	key      struct{ RKey verbs.RKey }
	groupFor struct {
		On    verbs.QP
		Group verbs.GID
	}

	newListener struct {
		On      verbs.CM
		Addr    netip.AddrPort
		Space   verbs.PortSpace
		Backlog int
	}
	madeListener struct {
		Handle handle
		Addr   netip.AddrPort
	}
	connectTo struct {
		On      verbs.CM
		QP      verbs.QP
		Addr    netip.AddrPort
		Param   verbs.ConnParam
		Timeout time.Duration
	}
	// peered is a connection or a connection request.
	peered struct {
		Handle handle
		Remote netip.AddrPort
		Param  verbs.ConnParam
	}
	resolveAt struct {
		On      verbs.CM
		Addr    netip.AddrPort
		Private []byte
		Timeout time.Duration
	}
	acceptWith struct {
		On      verbs.ConnRequest
		QP      verbs.QP
		Param   verbs.ConnParam
		Timeout time.Duration
	}
	rejectWith struct {
		On      verbs.ConnRequest
		Private []byte
	}

	closer interface{ Close() error }
)
