package wire

import (
	"bytes"
	"testing"
)

// A message with one field set has its bytes at the offset that the specification gives, and zeros
// elsewhere.
func TestFieldPositions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		m     body
		off   int
		bytes []byte
	}{
		{"REQ comm ID", &REQ{LocalCommID: 0x01020304}, 0, []byte{1, 2, 3, 4}},
		{"REQ vendor ID", &REQ{VendorID: 0x010203}, 5, []byte{1, 2, 3}},
		{"REQ service", &REQ{ServiceID: 0x0102030405060708}, 8, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"REQ GUID", &REQ{LocalCAGUID: 0x0102030405060708}, 16, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"REQ Q_Key", &REQ{LocalQKey: 0x01020304}, 28, []byte{1, 2, 3, 4}},
		{"REQ QPN", &REQ{LocalQPN: 0x010203}, 32, []byte{1, 2, 3}},
		{"REQ responder resources", &REQ{RespRes: 9}, 35, []byte{9}},
		{"REQ local EECN", &REQ{LocalEECN: 0x010203}, 36, []byte{1, 2, 3}},
		{"REQ initiator depth", &REQ{InitDepth: 9}, 39, []byte{9}},
		{"REQ remote EECN", &REQ{RemoteEECN: 0x010203}, 40, []byte{1, 2, 3}},
		{"REQ remote timeout", &REQ{RemoteRespTimeout: 31}, 43, []byte{0xF8}},
		{"REQ transport", &REQ{Transport: CMTransportExt}, 43, []byte{0x06}},
		{"REQ flow control", &REQ{E2EFlow: true}, 43, []byte{0x01}},
		{"REQ PSN", &REQ{StartPSN: 0x010203}, 44, []byte{1, 2, 3}},
		{"REQ local timeout", &REQ{LocalRespTimeout: 31}, 47, []byte{0xF8}},
		{"REQ retry count", &REQ{RetryCount: 7}, 47, []byte{0x07}},
		{"REQ P_Key", &REQ{PKey: 0x0102}, 48, []byte{1, 2}},
		{"REQ MTU", &REQ{MTU: 15}, 50, []byte{0xF0}},
		{"REQ RDC", &REQ{RDCExists: true}, 50, []byte{0x08}},
		{"REQ RNR retry", &REQ{RNRRetry: 7}, 50, []byte{0x07}},
		{"REQ CM retries", &REQ{MaxCMRetries: 15}, 51, []byte{0xF0}},
		{"REQ SRQ", &REQ{SRQ: true}, 51, []byte{0x08}},
		{"REQ extended transport", &REQ{ExtTransport: 7}, 51, []byte{0x07}},
		{"REQ local LID", &REQ{Primary: CMPath{LocalLID: 0x0102}}, 52, []byte{1, 2}},
		{"REQ remote LID", &REQ{Primary: CMPath{RemoteLID: 0x0102}}, 54, []byte{1, 2}},
		{"REQ local GID", &REQ{Primary: CMPath{LocalGID: GID{1, 2}}}, 56, []byte{1, 2}},
		{"REQ remote GID", &REQ{Primary: CMPath{RemoteGID: GID{1, 2}}}, 72, []byte{1, 2}},
		{"REQ flow label", &REQ{Primary: CMPath{FlowLabel: 0x12345}}, 88, []byte{0x12, 0x34, 0x50}},
		{"REQ rate", &REQ{Primary: CMPath{Rate: 0x3F}}, 91, []byte{0x3F}},
		{"REQ traffic class", &REQ{Primary: CMPath{TrafficClass: 9}}, 92, []byte{9}},
		{"REQ hop limit", &REQ{Primary: CMPath{HopLimit: 9}}, 93, []byte{9}},
		{"REQ SL", &REQ{Primary: CMPath{SL: 15}}, 94, []byte{0xF0}},
		{"REQ subnet local", &REQ{Primary: CMPath{SubnetLocal: true}}, 94, []byte{0x08}},
		{"REQ ACK timeout", &REQ{Primary: CMPath{AckTimeout: 31}}, 95, []byte{0xF8}},
		{"REQ alternate local GID", &REQ{Alternate: CMPath{LocalGID: GID{1, 2}}}, 100, []byte{1, 2}},
		{"REQ alternate ACK timeout", &REQ{Alternate: CMPath{AckTimeout: 31}}, 139, []byte{0xF8}},
		{"REQ private data", &REQ{PrivateData: [92]byte{1, 91: 2}}, 140, append(append([]byte{1}, make([]byte, 90)...), 2)},

		{"MRA comm IDs", &MRA{LocalCommID: 1, RemoteCommID: 2}, 0, []byte{0, 0, 0, 1, 0, 0, 0, 2}},
		{"MRA about", &MRA{About: AboutOther}, 8, []byte{0x80}},
		{"MRA service timeout", &MRA{ServiceTimeout: 24}, 9, []byte{0xC0}},
		{"MRA private data", &MRA{PrivateData: [222]byte{1}}, 10, []byte{1}},

		{"REJ comm IDs", &REJ{LocalCommID: 1, RemoteCommID: 2}, 0, []byte{0, 0, 0, 1, 0, 0, 0, 2}},
		{"REJ about", &REJ{About: AboutREP}, 8, []byte{0x40}},
		{"REJ info length", &REJ{InfoLen: 72}, 9, []byte{0x90}},
		{"REJ reason", &REJ{Reason: 0x0102}, 10, []byte{1, 2}},
		{"REJ info", &REJ{Info: [72]byte{1, 2}}, 12, []byte{1, 2}},
		{"REJ private data", &REJ{PrivateData: [148]byte{1}}, 84, []byte{1}},

		{"REP comm IDs", &REP{LocalCommID: 1, RemoteCommID: 2}, 0, []byte{0, 0, 0, 1, 0, 0, 0, 2}},
		{"REP Q_Key", &REP{LocalQKey: 0x01020304}, 8, []byte{1, 2, 3, 4}},
		{"REP QPN", &REP{LocalQPN: 0x010203}, 12, []byte{1, 2, 3}},
		{"REP EECN", &REP{LocalEECN: 0x010203}, 16, []byte{1, 2, 3}},
		{"REP vendor ID", &REP{VendorID: 0x010203}, 15, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3}},
		{"REP PSN", &REP{StartPSN: 0x010203}, 20, []byte{1, 2, 3}},
		{"REP responder resources", &REP{RespRes: 9}, 24, []byte{9}},
		{"REP initiator depth", &REP{InitDepth: 9}, 25, []byte{9}},
		{"REP target ACK delay", &REP{TargetAckDelay: 15}, 26, []byte{0x78}},
		{"REP failover", &REP{Failover: 3}, 26, []byte{0x06}},
		{"REP flow control", &REP{E2EFlow: true}, 26, []byte{0x01}},
		{"REP RNR retry", &REP{RNRRetry: 7}, 27, []byte{0xE0}},
		{"REP SRQ", &REP{SRQ: true}, 27, []byte{0x10}},
		{"REP GUID", &REP{LocalCAGUID: 0x0102030405060708}, 28, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"REP private data", &REP{PrivateData: [196]byte{1}}, 36, []byte{1}},

		{"RTU private data", &RTU{PrivateData: [224]byte{1}}, 8, []byte{1}},
		{"DREQ QPN", &DREQ{RemoteQPN: 0x010203}, 8, []byte{1, 2, 3}},
		{"DREQ private data", &DREQ{PrivateData: [220]byte{1}}, 12, []byte{1}},
		{"DREP private data", &DREP{PrivateData: [224]byte{1}}, 8, []byte{1}},

		{"SIDR_REQ ID and P_Key", &SIDRREQ{RequestID: 1, PKey: 0x0203}, 3, []byte{1, 2, 3}},
		{"SIDR_REQ service", &SIDRREQ{ServiceID: 0x0102030405060708}, 8, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"SIDR_REQ private data", &SIDRREQ{PrivateData: [216]byte{1}}, 16, []byte{1}},
		{"SIDR_REP ID, status, length", &SIDRREP{RequestID: 1, Status: 2, InfoLen: 3}, 3, []byte{1, 2, 3}},
		{"SIDR_REP vendor ID", &SIDRREP{VendorID: 0x010203}, 6, []byte{1, 2, 0, 0, 0, 3}},
		{"SIDR_REP QPN", &SIDRREP{QPN: 0x010203}, 8, []byte{1, 2, 3}},
		{"SIDR_REP service", &SIDRREP{ServiceID: 0x0102030405060708}, 12, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"SIDR_REP Q_Key", &SIDRREP{QKey: 0x01020304}, 20, []byte{1, 2, 3, 4}},
		{"SIDR_REP info", &SIDRREP{Info: [72]byte{1}}, 24, []byte{1}},
		{"SIDR_REP private data", &SIDRREP{PrivateData: [136]byte{1}}, 96, []byte{1}},

		{"LAP QPN", &LAP{RemoteQPN: 0x010203}, 12, []byte{1, 2, 3}},
		{"LAP timeout", &LAP{RemoteRespTimeout: 31}, 15, []byte{0xF8}},
		{"LAP LIDs", &LAP{Alternate: CMPath{LocalLID: 0x0102, RemoteLID: 0x0304}}, 20, []byte{1, 2, 3, 4}},
		{"LAP local GID", &LAP{Alternate: CMPath{LocalGID: GID{1}}}, 24, []byte{1}},
		{"LAP remote GID", &LAP{Alternate: CMPath{RemoteGID: GID{1}}}, 40, []byte{1}},
		{"LAP flow label", &LAP{Alternate: CMPath{FlowLabel: 0x12345}}, 56, []byte{0x12, 0x34, 0x50}},
		{"LAP traffic class", &LAP{Alternate: CMPath{TrafficClass: 9}}, 59, []byte{9}},
		{"LAP hop limit", &LAP{Alternate: CMPath{HopLimit: 9}}, 60, []byte{9}},
		{"LAP rate", &LAP{Alternate: CMPath{Rate: 0x3F}}, 61, []byte{0x3F}},
		{"LAP SL", &LAP{Alternate: CMPath{SL: 15, SubnetLocal: true}}, 62, []byte{0xF8}},
		{"LAP ACK timeout", &LAP{Alternate: CMPath{AckTimeout: 31}}, 63, []byte{0xF8}},
		{"LAP private data", &LAP{PrivateData: [168]byte{1}}, 64, []byte{1}},

		{"APR info length and status", &APR{InfoLen: 1, Status: 2}, 8, []byte{1, 2}},
		{"APR info", &APR{Info: [72]byte{1}}, 12, []byte{1}},
		{"APR private data", &APR{PrivateData: [148]byte{1}}, 84, []byte{1}},
	} {
		want := make([]byte, MADBodyLen)
		copy(want[tc.off:], tc.bytes)
		if got := tc.m.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tc.name, got, want)
		}
	}
}
