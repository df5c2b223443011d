package verbs

// Unimplemented implements the optional verbs of Context by returning
// ErrNotSupported. Providers embed it and override the verbs that they support.
type Unimplemented struct{}

func unsupported(op string) error { return &OpError{Op: op, Err: ErrNotSupported} }

// CreateSRQ is not supported.
func (Unimplemented) CreateSRQ(SRQInit) (SRQ, error) { return nil, unsupported("create_srq") }

// OpenXRCD is not supported.
func (Unimplemented) OpenXRCD() (XRCD, error) { return nil, unsupported("open_xrcd") }

// OpenQP is not supported.
func (Unimplemented) OpenQP(XRCD, QPN) (QP, error) { return nil, unsupported("open_qp") }

// Counters returns nil.
func (Unimplemented) Counters() []Counter { return nil }

// CM is not supported.
func (Unimplemented) CM() (CM, error) { return nil, unsupported("cm") }
