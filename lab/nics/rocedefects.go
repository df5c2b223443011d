package nics

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
)

// roceWire are the defects of a soft-RoCE NIC: of the engine, of its packets, and
// of its connection manager.
type roceWire struct {
	nic  softroce.Defects
	wire rocewire.Defects
	cm   cm.Defects
}

// managerPrefix is the prefix of the defects of the connection manager.
const managerPrefix = "cm."

// set adds a defect: NAME, cm.NAME or cm.NAME=NUMBER.
func (f *roceWire) set(spec string) error {
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
			return fmt.Errorf("defect %s needs a number of at least 1, for example %s=3", spec, name)
		}
		field.SetUint(n)
	case hasNumber:
		return fmt.Errorf("defect %s: only %sStopAfterConns takes a number", spec, managerPrefix)
	case kind == reflect.Bool:
		field.SetBool(true)
	case f.nic.Set(name, true) != nil && f.wire.Set(name, true) != nil:
		return &UnknownDefectError{Name: name}
	}
	return nil
}

// managerDefects are the boolean fields of cm.Defects. Its address fields are left
// out, because they differ between NICs.
var managerDefects = []Defect{
	{Name: managerPrefix + "IgnoreREQ", Imitates: "", Does: "connection requests to a listener are never answered"},
	{Name: managerPrefix + "StopAfterConns=N", Imitates: "R14", Does: "connection requests are ignored after N connections"},
	{Name: managerPrefix + "LeakTimeWait", Imitates: "", Does: "connections are never freed at the end of time wait"},
	{Name: managerPrefix + "IgnoreUnknownService", Imitates: "", Does: "requests to a port nobody listens on are not refused"},
	{Name: managerPrefix + "RejectWithoutCommID", Imitates: "", Does: "a refusal does not say which request it is for"},
	{Name: managerPrefix + "NoRetransmitREP", Imitates: "", Does: "a lost reply is not sent again"},
	{Name: managerPrefix + "DuplicateREQSecondConn", Imitates: "", Does: "a repeated request is taken for a new connection"},
	{Name: managerPrefix + "RejectZeroLID", Imitates: "", Does: "requests without LIDs, which RoCEv2 has not, are refused"},
	{Name: managerPrefix + "NoDREPWhenDisconnected", Imitates: "", Does: "a disconnect request is answered only while connected"},
	{Name: managerPrefix + "IgnoreCommEst", Imitates: "", Does: "data that arrives does not stand for a lost confirmation"},
	{Name: managerPrefix + "AcceptAnyPrivateVersion", Imitates: "", Does: "the version of rdma_cm's header is not checked"},
	{Name: managerPrefix + "NoMRA", Imitates: "", Does: "the peer is never asked to wait longer"},
	{Name: managerPrefix + "SIDRZeroQKey", Imitates: "", Does: "a datagram service is resolved without its Q_Key"},
	{Name: managerPrefix + "OverIPv4", Imitates: "", Does: "an IPv6 connection is managed over IPv4"},
}
