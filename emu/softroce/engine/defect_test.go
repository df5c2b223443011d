package engine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// defectCase is a short conversation with a NIC. What the NIC does in it is
// written down, and must read one way of a sound NIC and another way of one
// with the defect.
type defectCase struct {
	setup     setup
	wraps     bool // PSNs run over the end of their space
	talk      func(*talk)
	sound     string
	defective string
}

// defectCases has a conversation for every defect.
var defectCases = joined(
	responderDefects, readDefects, requesterDefects, completerDefects, timerDefects,
	orderDefects, executeDefects, atomicDefects, ackDefects, retryDefects, sinkDefects, objectDefects, lateDefects,
	queueDefects, stateDefects, datagramDefects, portDefects, congestionDefects, memoryDefects, edgeDefects,
)

func joined(parts ...map[string]defectCase) map[string]defectCase {
	all := map[string]defectCase{}
	for _, part := range parts {
		for name, c := range part {
			if _, twice := all[name]; twice {
				panic("two conversations for defect " + name)
			}
			all[name] = c
		}
	}
	return all
}

// defectNames lists the names of all defects.
func defectNames() (names []string) {
	for _, info := range AllDefects() {
		names = append(names, info.Name)
	}
	return names
}

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	for _, name := range defectNames() {
		c, ok := defectCases[name]
		if !ok {
			t.Errorf("defect %s has no conversation that shows it: add one to a defect_*_test.go", name)
			continue
		}
		if c.sound == c.defective {
			t.Errorf("%s: the conversation would not tell a defective NIC from a sound one", name)
		}
		t.Run(name+"/off", func(t *testing.T) { c.play(t, "", c.sound) })
		t.Run(name+"/on", func(t *testing.T) { c.play(t, name, c.defective) })
	}
	for name := range defectCases {
		if !slices.Contains(defectNames(), name) {
			t.Errorf("there is a conversation for %s, but no such defect", name)
		}
	}
}

// play holds the conversation with a NIC that has one defect or none.
func (c *defectCase) play(t *testing.T, defect, want string) {
	fl := flavours[0]
	if c.wraps {
		fl = flavours[1]
	}
	s := c.setup
	s.nic = func(cfg *Config) {
		if defect != "" {
			if err := cfg.Defects.Set(defect, true); err != nil {
				t.Fatal(err)
			}
		}
		if c.setup.nic != nil {
			c.setup.nic(cfg)
		}
	}
	k := &talk{peer: newPeer(t, fl, s)}
	c.talk(k)
	if got := strings.Join(k.log, "; "); got != want {
		t.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(k.log, "\n\t"), strings.ReplaceAll(want, "; ", "\n\t"))
	}
}

// switches lists the fields of a struct of defects, straight from its type.
func switches(t *testing.T, typ reflect.Type) (names []string) {
	t.Helper()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type.Kind() == reflect.Struct {
			names = append(names, switches(t, f.Type)...)
			continue
		}
		if f.Type.Kind() != reflect.Bool || f.Tag.Get("imitates") == "" || f.Tag.Get("does") == "" {
			t.Errorf("%v.%s must be a bool with tags that say whose defect it is and what it does", typ, f.Name)
		}
		names = append(names, f.Name)
	}
	return names
}

func TestDefectNamesAreTheSwitches(t *testing.T) {
	names := switches(t, reflect.TypeFor[Defects]())
	if got := defectNames(); !slices.Equal(got, names) {
		t.Errorf("listed are %q, want %q", got, names)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("of %d names %d are used twice: Set could not tell them apart", len(names), len(names)-len(unique))
	}
}

func TestSetSwitchesOneDefect(t *testing.T) {
	for _, name := range defectNames() {
		var q Defects
		if err := q.Set(name, true); err != nil {
			t.Fatal(err)
		}
		if got := q.Names(); !slices.Equal(got, []string{name}) {
			t.Errorf("after Set(%s), Names() = %q", name, got)
		}
		if err := q.Set(name, false); err != nil || q != (Defects{}) {
			t.Errorf("Set(%s) back: %v, %q still on", name, err, q.Names())
		}
	}
}

func TestNamesKeepTheOrderOfTheStruct(t *testing.T) {
	q := Defects{ICRCIgnored: true, AckReqOnResponses: true}
	q.Memory.WindowBounds = true
	if got, want := q.Names(), []string{"AckReqOnResponses", "ICRCIgnored", "WindowBounds"}; !slices.Equal(got, want) {
		t.Errorf("Names() = %q, want %q", got, want)
	}
	if got := new(Defects).Names(); len(got) != 0 {
		t.Errorf("a sound NIC has defects %q", got)
	}
}

func TestSetRefusesWhatIsNoDefect(t *testing.T) {
	for name, hint := range map[string]string{
		"ackskipsread": "did you mean AckSkipsRead?",
		"ForeignInv":   "did you mean ForeignInvalidate?",
		"Memory":       "", // a group, not a switch
		"":             "",
		"Nonsense":     "",
	} {
		var q Defects
		err := q.Set(name, true)
		if !errors.Is(err, verbs.ErrNotFound) || q != (Defects{}) {
			t.Errorf("Set(%q) = %v, on: %q", name, err, q.Names())
			continue
		}
		if !strings.HasSuffix(err.Error(), hint) || hint == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("Set(%q) = %q, want the hint %q", name, err, hint)
		}
	}
}
