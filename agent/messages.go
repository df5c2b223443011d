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

	// onWith has an argument besides the object, such as attributes or a timeout.
	onWith[T, A any] struct {
		On  T
		Arg A
	}

	// value is a single result.
	value[T any] struct{ V T }

	made struct{ Handle handle }

	// madeWith is a new object with an attribute.
	madeWith[A any] struct {
		Handle handle
		Attr   A
	}

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

	onEntry struct {
		On    verbs.Context
		Port  uint8
		Index int
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

	receiver interface {
		PostRecv([]verbs.RecvWR) (int, error)
	}
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

	newListener struct {
		On      verbs.CM
		Addr    netip.AddrPort
		Space   verbs.PortSpace
		Backlog int
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

	closer interface{ Close() error }
)
