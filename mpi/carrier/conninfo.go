package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// connInfo is the information that two ranks exchange to connect.
type connInfo struct {
	rail    int
	qpn     verbs.QPN
	psn     uint32
	credits int
}

// remote is the queue pair of the peer at an endpoint.
func (h connInfo) remote(at transport.Endpoint) transport.Remote {
	return transport.Remote{GID: at.GID, QPN: h.qpn, PSN: h.psn}
}

const connInfoLen = 1 + 4 + 4 + 2

// bytes encodes the information for the peer.
func (h connInfo) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, connInfoLen), byte(h.rail))
	b = le.AppendUint32(b, uint32(h.qpn))
	b = le.AppendUint32(b, h.psn)
	return le.AppendUint16(b, uint16(h.credits))
}

// parseConnInfo decodes the information that bytes encodes, and checks its length and rail.
func (c *Carrier) parseConnInfo(b []byte) (h connInfo, err error) {
	if len(b) != connInfoLen || int(b[0]) >= len(c.rails) {
		return h, fmt.Errorf("%w: of a connection: % x", errMalformed, b)
	}
	le := binary.LittleEndian
	return connInfo{int(b[0]), verbs.QPN(le.Uint32(b[1:])), le.Uint32(b[5:]), int(le.Uint16(b[9:]))}, nil
}
