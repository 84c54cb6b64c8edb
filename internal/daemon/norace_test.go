//go:build !race && cgo

package daemon

const otherMemory = ""
