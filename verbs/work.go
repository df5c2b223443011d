package verbs

// WROpcode is the operation of a send work request.
type WROpcode uint32

// Send opcodes.
const (
	OpRDMAWrite       WROpcode = 0
	OpRDMAWriteImm    WROpcode = 1
	OpSend            WROpcode = 2
	OpSendImm         WROpcode = 3
	OpRDMARead        WROpcode = 4
	OpAtomicCmpAndSwp WROpcode = 5
	OpAtomicFetchAdd  WROpcode = 6
	OpLocalInv        WROpcode = 7
	OpBindMW          WROpcode = 8
	OpSendInv         WROpcode = 9
	OpFlush           WROpcode = 14
	OpAtomicWrite     WROpcode = 15
)

// SendFlags modify a send work request.
type SendFlags uint32

// Send flags.
const (
	SendFence SendFlags = 1 << iota
	SendSignaled
	SendSolicited
	SendInline
)

// SendWR is a send work request. The opcode determines which fields are used.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	// SGL is the local memory: the source of sends and writes, the destination of
	// reads and atomic results.
	SGL []SGE
	// Inline is the payload if Flags has SendInline. It may be reused after PostSend.
	Inline []byte
	// Imm is immediate data in host byte order; the wire has it in network order.
	Imm uint32
	// InvalidateRKey is the key that OpSendInv and OpLocalInv invalidate.
	InvalidateRKey RKey
	Remote         Remote
	Atomic         Atomic
	UD             UD
	XRC            XRC
	Bind           Bind
	Flush          Flush
}

// Remote is the remote memory of an RDMA write, read or atomic.
type Remote struct {
	Addr uint64
	RKey RKey
}

// Atomic are the operands of an atomic operation.
type Atomic struct {
	CompareAdd uint64
	Swap       uint64
}

// UD is the destination of a datagram.
type UD struct {
	AH   AH
	QPN  QPN
	QKey uint32
}

// XRC is the destination SRQ of an XRC send.
type XRC struct {
	SRQN uint32
}

// Bind are the operands of OpBindMW.
type Bind struct {
	MW   MW
	RKey RKey
	Info BindInfo
}

// Flush are the operands of OpFlush, which flushes Length bytes at Remote.
type Flush struct {
	Length uint32
	Type   FlushType
	Level  FlushLevel
}

// FlushType is the placement type of a flush.
type FlushType uint8

// Flush placement types.
const (
	FlushGlobal     FlushType = 1
	FlushPersistent FlushType = 2
)

// FlushLevel is the selectivity level of a flush.
type FlushLevel uint8

// Flush selectivity levels.
const (
	FlushRange FlushLevel = 0
	FlushMR    FlushLevel = 1
)

// RecvWR is a receive work request.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}

// WCStatus is the status of a work completion.
type WCStatus uint32

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
)

// WCOpcode is the opcode of a work completion.
type WCOpcode uint32

// Completion opcodes.
const (
	WCOpSend            WCOpcode = 0
	WCOpRDMAWrite       WCOpcode = 1
	WCOpRDMARead        WCOpcode = 2
	WCOpCompSwap        WCOpcode = 3
	WCOpFetchAdd        WCOpcode = 4
	WCOpBindMW          WCOpcode = 5
	WCOpLocalInv        WCOpcode = 6
	WCOpFlush           WCOpcode = 8
	WCOpAtomicWrite     WCOpcode = 9
	WCOpRecv            WCOpcode = 128
	WCOpRecvRDMAWithImm WCOpcode = 129
)

// WCFlags tell which optional fields of a completion are valid.
type WCFlags uint32

// Completion flags.
const (
	WCWithGRH WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// WC is a work completion. If Status is not WCSuccess, only WRID, Status, QPN
// and VendorErr are valid.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32
	// InvalidatedRKey is the local key that a send with invalidate invalidated.
	InvalidatedRKey RKey
	QPN             QPN
	SrcQP           QPN
	Flags           WCFlags
	PKeyIndex       uint16
	SL              uint8
}
