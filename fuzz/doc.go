// Package fuzz has the fuzz targets that need several packages at once, whole
// stacks in simulated worlds, and the list of all targets of the module.
//
// A target here hunts broken promises, not only crashes: no byte outside of a
// region changes, no completion is lost, doubled or reordered, nothing grows
// without bound, and a device still works when its tormentor has gone. The targets
// of a codec or an engine stand beside it.
//
//   - FuzzRoCEPath, FuzzDatagramPath: a bad network between two honest devices. All
//     that their service promises must hold, as the model of package random has it.
//   - FuzzRoCEPeer, FuzzDatagramPeer: whoever is in between knows every key, and
//     makes packets that look right. What is not registered for it stays as it is.
//   - FuzzStreamPeer: any bytes on the TCP connections of a soft-iWARP device.
//   - FuzzVerbs: any sequence of verbs on every device, against a model of them.
//   - FuzzScenario: any file as a scenario.
//
// The package itself has the list and what runs the targets, for cmd/fabrictest: it
// builds test programs with the go command and reads their output. It imports no stack.
package fuzz
