package bench

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// listedDevices is a provider that lists devices and opens none.
type listedDevices struct{ names []string }

var _ verbs.Provider = listedDevices{}

func (p listedDevices) Name() string { return "fake" }

func (p listedDevices) Devices() (all []verbs.DeviceInfo, _ error) {
	for _, n := range p.names {
		all = append(all, verbs.DeviceInfo{Name: n, Provider: "fake"})
	}
	return all, nil
}

func (p listedDevices) Open(name string) (verbs.Context, error) {
	return nil, &verbs.OpError{Op: "open", Obj: name, Err: verbs.ErrNotFound}
}

// makeFiles creates files below a root, and symbolic links if the text begins with "->".
func makeFiles(tb testing.TB, files map[string]string) (root string) {
	tb.Helper()
	root = tb.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		var err error
		if len(text) > 2 && text[:2] == "->" {
			err = os.Symlink(text[2:], path)
		} else {
			err = os.WriteFile(path, []byte(text+"\n"), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// sysfsFiles describes devices of several drivers like Linux.
var sysfsFiles = map[string]string{
	"etc/os-release":               "NAME=x\nPRETTY_NAME=\"Some Linux 12\"",
	"sys/module/rdma_rxe/version":  "1.7",
	"sys/module/siw/srcversion":    "ABCDEF",
	"sys/class/net/wire0/address":  "02:00:5e:10:00:01",
	"sys/class/net/other0/address": "02:00:5e:10:00:02",

	"sys/class/infiniband/rxe0/parent":    "wire0",
	"sys/class/infiniband/rxe0/node_type": "1: CA",
	"sys/class/infiniband/rxe0/fw_ver":    "0.0.1",

	"sys/class/infiniband/siw0/node_type": "4: RNIC",
	"sys/class/infiniband/siw0/node_guid": "0000:5eff:fe10:0002",

	"sys/class/infiniband/mlx5_0/node_type":                      "1: CA",
	"sys/class/infiniband/mlx5_0/fw_ver":                         "20.31",
	"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0":      "wire0",
	"sys/class/infiniband/mlx5_0/device":                         "->../../../devices/pci0/0000:3b:00.0",
	"sys/devices/pci0/0000:3b:00.0/driver":                       "->../../../bus/pci/drivers/mlx5_core",
	"sys/class/infiniband/cxgb4_0/node_type":                     "4: RNIC",
	"sys/class/infiniband/cxgb4_0/device":                        "->../../../devices/pci0/0000:3c:00.4",
	"sys/devices/pci0/0000:3c:00.4/driver":                       "->../../../bus/pci/drivers/cxgb4",
	"sys/devices/pci0/0000:3c:00.4/net/wire0/address":            "02:00:5e:10:00:01",
	"sys/class/infiniband/nonetdev0/node_type":                   "1: CA",
	"sys/class/infiniband/nonetdev0/ports/1/gid_attrs/ndevs/own": "",
}

func TestIdentity(t *testing.T) {
	names := []string{"rxe0", "siw0", "mlx5_0", "cxgb4_0", "nonetdev0", "../../etc"}
	h := must.Get(NewLocalHost(listedDevices{names}, LocalHostOptions{Root: makeFiles(t, sysfsFiles), Program: "test 1"}))(t)
	defer h.Close()
	id := must.Get(h.Identity())(t)
	if id.OS != "Some Linux 12" || id.Arch != runtime.GOARCH || id.Hostname == "" || id.Program != "test 1" || runtime.GOOS == "linux" && id.Kernel == "" {
		t.Errorf("%+v", id)
	}
	for i, want := range []agent.DeviceIdentity{
		{Driver: "rdma_rxe", DriverVersion: "1.7", Firmware: "0.0.1", NetDevice: "wire0"},
		{Driver: "siw", DriverVersion: "srcversion ABCDEF", NetDevice: "other0"},
		{Driver: "mlx5_core", Firmware: "20.31", NetDevice: "wire0", Where: "0000:3b:00.0"},
		{Driver: "cxgb4", NetDevice: "wire0", Where: "0000:3c:00.4"},
		{},
		{},
	} {
		d := id.Devices[i]
		if d.Info.Name != names[i] || d.Driver != want.Driver || d.DriverVersion != want.DriverVersion || d.Firmware != want.Firmware || d.NetDevice != want.NetDevice || d.Where != want.Where {
			t.Errorf("%s: %+v, want %+v", names[i], d, want)
		}
	}
}

func TestUnsupportedFunctions(t *testing.T) {
	h := must.Get(NewLocalHost(listedDevices{}, LocalHostOptions{Root: makeFiles(t, sysfsFiles)}))(t)
	defer h.Close()
	for _, device := range []string{"mlx5_0", "nonetdev0", "none0"} {
		if err := h.Restart(device); !errors.Is(err, agent.ErrHostCannot) {
			t.Errorf("restart %s: %v", device, err)
		}
	}
	if err := h.SetLink("nonetdev0", true); !errors.Is(err, verbs.ErrNotFound) && !errors.Is(err, agent.ErrHostCannot) {
		t.Error(err)
	}
	if _, err := h.Open("none0"); !errors.Is(err, verbs.ErrNotFound) {
		t.Error(err)
	}
}
