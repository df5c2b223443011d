package verbs

// CQInit are the parameters of CreateCQ.
type CQInit struct {
	Depth int
	// Channel receives completion events; nil if the CQ is only polled.
	Channel CompChannel
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves up to len(into) completions, oldest first, from the queue to into
	// and returns their number. It neither blocks nor allocates.
	Poll(into []WC) (int, error)
	// ReqNotify requests one event for the next completion; with solicitedOnly, for
	// the next solicited or failed completion. A request for any completion
	// overrides a pending solicited-only request.
	ReqNotify(solicitedOnly bool) error
	Depth() int
	Resize(depth int) error
	Close() error
}

// SRQType is the type of a shared receive queue.
type SRQType uint32

// Shared receive queue types.
const (
	SRQBasic SRQType = 0
	SRQXRC   SRQType = 1
)

// SRQInit are the parameters of CreateSRQ. XRCD and CQ are for SRQXRC only.
type SRQInit struct {
	PD     PD
	Type   SRQType
	MaxWR  int
	MaxSGE int
	Limit  int
	XRCD   XRCD
	CQ     CQ
}

// SRQAttrMask selects attributes of a shared receive queue.
type SRQAttrMask uint32

// Shared receive queue attributes.
const (
	SRQMaxWR SRQAttrMask = 1 << 0
	SRQLimit SRQAttrMask = 1 << 1
)

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  int
	MaxSGE int
	Limit  int
}

// SRQ is a shared receive queue.
type SRQ interface {
	// PostRecv posts wrs in order until one fails. It returns the number posted and
	// the error of the failed one.
	PostRecv(wrs []RecvWR) (posted int, err error)
	Modify(SRQAttr, SRQAttrMask) error
	Query() (SRQAttr, error)
	// Number returns the SRQ number that XRC senders put into work requests.
	Number() uint32
	Close() error
}

// QPN is a queue pair number.
type QPN uint32

// MulticastQPN is the destination QPN of multicast datagrams.
const MulticastQPN QPN = 0xffffff

// QPType is the transport service type of a QP.
type QPType uint32

// Queue pair types.
const (
	QPTypeRC      QPType = 2
	QPTypeUC      QPType = 3
	QPTypeUD      QPType = 4
	QPTypeXRCSend QPType = 9
	QPTypeXRCRecv QPType = 10
)

// QPState is the state of a queue pair.
type QPState uint32

// Queue pair states.
const (
	QPStateReset QPState = iota
	QPStateInit
	QPStateRTR
	QPStateRTS
	QPStateSQD
	QPStateSQE
	QPStateErr
)

// MigState is the automatic path migration state of a QP.
type MigState uint32

// Path migration states.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// QPCaps are the queue sizes of a QP, as in struct ibv_qp_cap.
type QPCaps struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int
}

// QPInit are the parameters of CreateQP. All types need a PD, except QPTypeXRCRecv,
// which needs an XRCD.
type QPInit struct {
	Type   QPType
	PD     PD
	XRCD   XRCD
	SendCQ CQ
	RecvCQ CQ
	SRQ    SRQ
	Caps   QPCaps
	// SignalAll makes every send work request signaled.
	SignalAll bool
}

// QPAttrMask selects queue pair attributes.
type QPAttrMask uint32

// Queue pair attributes.
const (
	QPAttrState QPAttrMask = 1 << iota
	QPAttrCurState
	QPAttrEnSQDAsyncNotify
	QPAttrAccessFlags
	QPAttrPKeyIndex
	QPAttrPort
	QPAttrQKey
	QPAttrAV
	QPAttrPathMTU
	QPAttrTimeout
	QPAttrRetryCnt
	QPAttrRNRRetry
	QPAttrRQPSN
	QPAttrMaxQPRdAtomic
	QPAttrAltPath
	QPAttrMinRNRTimer
	QPAttrSQPSN
	QPAttrMaxDestRdAtomic
	QPAttrPathMigState
	QPAttrCap
	QPAttrDestQPN
)

// QPAttr are the attributes of a queue pair.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     MigState
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          QPN
	Access           Access
	Caps             QPCaps
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	Port             uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPort          uint8
	AltTimeout       uint8
}

// QP is a queue pair.
type QP interface {
	QPN() QPN
	Type() QPType
	// Modify changes all attributes that mask selects, or none. The mask is explicit
	// because conformance tests omit required attributes.
	Modify(attr QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// PostSend posts wrs in order until one fails. It returns the number posted and
	// the error of the failed one.
	PostSend(wrs []SendWR) (posted int, err error)
	PostRecv(wrs []RecvWR) (posted int, err error)
	// BindMW binds a type 1 window and returns its new key.
	BindMW(mw MW, wrID uint64, flags SendFlags, info BindInfo) (RKey, error)
	AttachMulticast(group GID) error
	DetachMulticast(group GID) error
	Close() error
}
