package nics

import (
	"fmt"
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

// set adds a defect.
func (f *roceWire) set(spec string) error {
	name, _, hasNumber := strings.Cut(spec, "=")
	switch {
	case hasNumber:
		return fmt.Errorf("defect %s takes no number", spec)
	case name == managerPrefix+"IgnoreCommEst":
		f.cm.IgnoreCommEst = true
	case f.nic.Set(name, true) != nil && f.wire.Set(name, true) != nil:
		return &UnknownDefectError{Name: name}
	}
	return nil
}

// managerDefects are those of the connection manager that are set at run time.
var managerDefects = []Defect{
	{Name: managerPrefix + "IgnoreCommEst", Does: "data that arrives does not stand for a lost confirmation"},
}
