package nics

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/flaw"
)

// roceFlaws are the defects of a soft-RoCE NIC: of the engine, of its packets, and
// of its connection manager.
type roceFlaws struct {
	nic  softroce.Quirks
	wire flaw.Quirks
	cm   cm.Quirks
}

// managerPrefix is the prefix of the defects of the connection manager.
const managerPrefix = "cm."

// set adds a defect: NAME, cm.NAME or cm.NAME=NUMBER.
func (f *roceFlaws) set(spec string) error {
	name, number, hasNumber := strings.Cut(spec, "=")
	field := reflect.Value{}
	if rest, ok := strings.CutPrefix(name, managerPrefix); ok {
		field = reflect.ValueOf(&f.cm).Elem().FieldByName(rest)
	}
	kind := reflect.Invalid
	if field.IsValid() {
		kind = field.Kind()
	}
	switch {
	case kind == reflect.Uint64:
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("quirk %s needs a number of at least 1, for example %s=3", spec, name)
		}
		field.SetUint(n)
	case hasNumber:
		return fmt.Errorf("quirk %s: only %sStopAfterConns takes a number", spec, managerPrefix)
	case kind == reflect.Bool:
		field.SetBool(true)
	case f.nic.Set(name, true) != nil && f.wire.Set(name, true) != nil:
		return &UnknownQuirkError{Name: name}
	}
	return nil
}

// managerQuirks are the boolean fields of cm.Quirks. Its address fields are left
// out, because they differ between NICs.
var managerQuirks = []Quirk{
	{Name: managerPrefix + "IgnoreREQ", Defect: "", Does: "connection requests to a listener are never answered"},
	{Name: managerPrefix + "StopAfterConns=N", Defect: "R14", Does: "connection requests are ignored after N connections"},
	{Name: managerPrefix + "LeakTimeWait", Defect: "", Does: "connections are never freed at the end of time wait"},
	{Name: managerPrefix + "IgnoreUnknownService", Defect: "", Does: "requests to a port nobody listens on are not refused"},
	{Name: managerPrefix + "RejectWithoutCommID", Defect: "", Does: "a refusal does not say which request it is for"},
	{Name: managerPrefix + "NoRetransmitREP", Defect: "", Does: "a lost reply is not sent again"},
	{Name: managerPrefix + "DuplicateREQSecondConn", Defect: "", Does: "a repeated request is taken for a new connection"},
	{Name: managerPrefix + "RejectZeroLID", Defect: "", Does: "requests without LIDs, which RoCEv2 has not, are refused"},
	{Name: managerPrefix + "NoDREPWhenDisconnected", Defect: "", Does: "a disconnect request is answered only while connected"},
	{Name: managerPrefix + "IgnoreCommEst", Defect: "", Does: "data that arrives does not stand for a lost confirmation"},
	{Name: managerPrefix + "AcceptAnyPrivateVersion", Defect: "", Does: "the version of rdma_cm's header is not checked"},
	{Name: managerPrefix + "NoMRA", Defect: "", Does: "the peer is never asked to wait longer"},
	{Name: managerPrefix + "SIDRZeroQKey", Defect: "", Does: "a datagram service is resolved without its Q_Key"},
	{Name: managerPrefix + "OverIPv4", Defect: "", Does: "an IPv6 connection is managed over IPv4"},
}
