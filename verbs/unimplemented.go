package verbs

// Unimplemented answers every optional verb of a Context with ErrNotSupported.
// Providers embed it and override what they have.
type Unimplemented struct{}

func unsupported(op string) error { return &OpError{Op: op, Err: ErrNotSupported} }

// CreateSRQ is not supported.
func (Unimplemented) CreateSRQ(SRQInit) (SRQ, error) { return nil, unsupported("create_srq") }

// OpenXRCD is not supported.
func (Unimplemented) OpenXRCD() (XRCD, error) { return nil, unsupported("open_xrcd") }

// OpenQP is not supported.
func (Unimplemented) OpenQP(XRCD, QPN) (QP, error) { return nil, unsupported("open_qp") }

// Counters are none.
func (Unimplemented) Counters() []Counter { return nil }

// CM is not supported.
func (Unimplemented) CM() (CM, error) { return nil, unsupported("cm") }
