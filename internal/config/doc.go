// Package config reads the configuration: one YAML file in which every key must be known
// and every value must fit, with all that is wrong told at once and by line. What it
// holds is defaults, below the command line and the environment.
//
// It may import packages engine, access and reservation, and a YAML library.
package config
